"""The loop: trainer.py reads top to bottom, drive.py executes what it asks for."""
