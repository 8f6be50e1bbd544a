"""What the comparisons with TRL share: one setting, either tool's step of it, the check that both are the same step."""
