"""Run directories: where they are, what is in them, who holds them. Training (core) and MLflow are not here."""
