"""One file per format of log, each with a `Reader`; registry.py is the list of them."""
