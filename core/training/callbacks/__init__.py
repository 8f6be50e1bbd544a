"""What watches a run between its steps. Callbacks keep no state: they read the step table."""
