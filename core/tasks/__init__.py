"""What a policy is trained on: problems, how an output is scored, what to count. Imports no torch."""
