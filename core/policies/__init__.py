"""What is trained: the policy protocol and its implementations."""
