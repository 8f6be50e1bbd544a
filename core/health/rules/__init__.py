"""Families of rules: what the step table of a run, its samples and its settings say went wrong, and why.

One file is a family. A rule takes a case and returns findings; the docstring of the function that makes a finding has
a section `## id` about it, and docs/rules.md is written from these sections.
"""
