"""The names of surrogates, reductions and KL estimators: what a spec may say, without loading their formulas.

Those stand in the file of each, which chooses by a match that a name without a formula does not pass.
"""

from __future__ import annotations

from typing import Literal

SurrogateKind = Literal["clip", "dual_clip", "gspo", "mean_ratio", "cispo", "sapo", "reinforce", "dppo"]
Reduction = Literal["sequence_mean", "token_mean", "constant_length", "sequence_sum"]
KlEstimator = Literal["k1", "k2", "k3", "k1_ratio", "k3_ratio"]
