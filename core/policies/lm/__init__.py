"""The policy `lm`: a causal language model."""
