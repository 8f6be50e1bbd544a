"""A spec and TRL's GRPOConfig: what every field is to the other, and the settings of one as those of the other."""
