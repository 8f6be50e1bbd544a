"""Sampling: where its randomness comes from, the decode loop, and scored groups."""
