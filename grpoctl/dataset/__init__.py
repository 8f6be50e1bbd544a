"""`grpoctl check SPEC --data`: a task's own problems, and what the spec's model earns on a few of them, untrained."""
