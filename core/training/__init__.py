"""The loop: trainer.py and grpo.py read top to bottom, requests.py computes what they ask for."""
