"""Runs batches of cells, from config to record. Knows nothing of figures and claims.

Read in this order: `run` (the command), `sweep` (cells and their data), `engine` (which batches
train when), `trainer` (one batch from start to records), `programs` (from cells to tensors),
`recording` and `checkpoints` (what is written), `leases` (who trains what). Around them: `capacity`
(what fits on a device), `process` (device, signals, extra processes), `clock` (bound of the time,
time left), `progress`, `summary` and `table_notes` (what is shown).
"""
