"""The fast paths of a language model, a file each; core.policies.savings switches them, its comments say where each is."""
