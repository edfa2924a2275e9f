"""Records on disk, and the one table made of them. Nothing here loads torch.

Read in this order: `record` (a cell, what came out of it, how it was made), `store` (one JSON file
per cell) with `packed` (many cells in one Parquet file), `manifests` (what runs asked for),
`columns` (the schema of the table), `table` (selection of beta, the tidy table), `settings`
(filters, one setting of several), `results` (a folder with all of these; which models stay; what
`collect` writes).
"""
