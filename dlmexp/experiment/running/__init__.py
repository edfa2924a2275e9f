"""Runs batches of cells, from config to record; nothing here knows of figures or claims.

Read in this order: `run` (the command), `sweep` (cells and their data), `engine` (which batches
train when), `trainer` (one batch from start to records), `programs` (from cells to tensors),
`recording` and `checkpoints` (what is written), `leases` (which process trains which batch). Around
them: `capacity` (what fits on a device), `process` (device, requests to stop, extra processes),
`clock` and `cost` (expected durations), `progress` and `bars` (how far a run is), `summary`,
`table_notes` and `table_baselines` (what is printed about results and users' tables).
"""
