"""Image restoration (document 003): patches of photographs, degraded on the fly, and the reward of what is restored."""
