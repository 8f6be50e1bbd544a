"""Where weights come from, and the adapters put on them."""
