"""Ways to execute a run directory. An executor receives nothing but the path to a resolved spec in its directory."""
