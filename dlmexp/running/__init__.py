"""Runs batches of cells from start to record: programs, checkpoints, signals, progress, time estimates. Knows nothing
of figures and claims."""
