"""What a step table says about the health of a run: pure, torch-free rules, used live and after the fact.

Rules see rows of metrics only, never the spec's `faults`.
"""
