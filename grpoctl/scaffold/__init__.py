"""What `grpoctl new` writes: an experiment, its rewards and its data, which run as they are.

experiment.yaml, rewards.txt (Python) and problems.jsonl beside this file are the three; NAME and MODULE in them are
replaced. Not here: where they are written to (grpoctl.cli.new).
"""
