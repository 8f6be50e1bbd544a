"""Sweeps: what one is, which trials it makes of it, and what its study says. The only folder that imports optuna."""
