"""One file per command: parse, call, print. What is heavy is imported inside, when the command runs."""
