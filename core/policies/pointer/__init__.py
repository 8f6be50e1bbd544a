"""The policy `pointer`: picks examples for a query out of a pool of candidates (documents 001 and 004)."""
