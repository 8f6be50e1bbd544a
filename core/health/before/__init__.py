"""What a configuration can and cannot do, by arithmetic and the spec alone: before a step is made, without torch.

Rules see the spec and nothing else. What a run did (its step table) is judged by core.health.rules.
"""
