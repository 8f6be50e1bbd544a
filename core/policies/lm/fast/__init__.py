"""The fast paths of a language model. core.policies.savings switches them, and says where each is."""
