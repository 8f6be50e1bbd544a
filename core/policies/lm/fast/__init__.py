"""Fast paths of a language model: equal numbers, or equal but for rounding, each switched by a field of Savings."""
