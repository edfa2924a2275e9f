"""Compare our results with published numbers."""
