"""The fast paths of a language model, a file each. core.policies.savings switches them, and says where each is."""
