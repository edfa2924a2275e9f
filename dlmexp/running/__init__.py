"""Runs batches of cells from config to record. Knows nothing of figures and claims.

Read in this order: `run` (the command), `sweep` (cells and data), `engine` (batches, from start to records),
`programs` (from cells to tensors), `recording` and `checkpoint` (what is written), `leases` (who trains what). Around
them: `device` (and processes), `signals`; `clock`, `progress`, `tables` (what is shown).
"""
