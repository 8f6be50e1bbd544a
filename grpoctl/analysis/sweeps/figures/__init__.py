"""The figures of a study as PNG files; matplotlib is imported where something is drawn, never before."""
