"""One file per format of log, each with a `Reader`; opening.py is the list of them."""
