"""`grpoctl check --resources`: what a run needs, estimated from shapes and measured by a probe of a few steps."""
