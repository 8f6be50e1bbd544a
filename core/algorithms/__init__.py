"""The maths: pure functions from arrays to arrays, a topic a file. Knows no spec, policy or task."""
