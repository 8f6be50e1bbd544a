"""What finished runs say: intervals over seeds, comparisons, curves. Training and storing runs is not here."""
