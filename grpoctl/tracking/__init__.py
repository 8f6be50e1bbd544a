"""MLflow, and nothing else that imports it: the mirror writes runs there, `reading` reads them back.

A run never waits for MLflow and never fails because of it: the run directory is the truth, MLflow a copy of it.
"""
