"""From a run's record, ours or foreign, to findings: readers, the report in its forms, and the next experiment.

What is not here: the rules (core.health).
"""
