"""A file for each command of the table in grpoctl.app: its options, what it does and what it prints."""
