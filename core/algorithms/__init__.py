"""The maths: pure functions from tensors to tensors, a screen each. Knows no spec, policy or task."""
