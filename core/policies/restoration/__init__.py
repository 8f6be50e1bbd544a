"""The policy `restoration`: restores pictures by a network with twelve gates drawn from Betas (document 003)."""
