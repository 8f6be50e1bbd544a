"""A contextual bandit with continuous actions: what a package of somebody else's adds to grpoctl, whole.

settings   what a spec may say of it; imports no torch       policy    Gaussian actions, their log-probs are densities
task       reach a point that depends on the context         rule, reader, executor   one of each, the smallest there is
"""
