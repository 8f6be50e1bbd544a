"""`make gpu`: what the CUDA paths must do, tried on a CUDA device in 10 minutes, part by part."""
