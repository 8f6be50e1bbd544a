"""Causal language models: text in, text out, one factor per token."""
