"""The kinds of places that weights come from, a file each."""
