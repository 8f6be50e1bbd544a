"""One step of each kind of stage."""
