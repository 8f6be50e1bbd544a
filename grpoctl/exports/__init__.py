"""The weights a run leaves behind, and the model card beside them."""
