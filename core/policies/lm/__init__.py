"""The policy `lm`: a causal language model; text in, text out, one factor per token."""
