"""Scripts that measure; each prints what it measured."""
