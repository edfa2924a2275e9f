"""Runs batches of cells from config to record. Knows nothing of figures and claims.

Read in this order: `run` (the command), `sweep` (cells and data, and how they are shown), `engine`
(batches, from start to records), `programs` (from cells to tensors), `recording` (records and
checkpoints), `leases` (who trains what). Around them: `process` (device, signals, extra processes),
`clock` (time at most and left), `progress` (what is shown)."""
