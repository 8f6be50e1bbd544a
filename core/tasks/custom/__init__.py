"""A task of the user's own: rows of a dataset, a prompt made of their columns, reward functions."""
