"""What a run needs before it starts, by arithmetic on the model's shapes: memory by part, time, disk. No torch.

Not here: what a probe measures (grpoctl.resources), and where a model's configuration lies (core.models).
"""
