"""What a setting's gradient is worth before anything is trained: K, B, normaliser and filter in a bandit model.

Plain Python: exact sums where they are short, seeded draws with their standard error where they are not. Not here:
single probabilities of dead groups (core.health.before), and anything that was trained.
"""
