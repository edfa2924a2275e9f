"""Records on disk, and the tidy table that is made of them. Nothing here loads torch.

Read in this order: `record` (a cell, its result, its provenance), `store` (one JSON file per cell)
with `packed` (many cells in one Parquet file), `manifests` (the groups of candidates that runs
requested) with `refits` (selection by folds), `columns` (the schema of the table), `table`
(selection of beta, the tidy table), `settings` (filters, and which of several settings is shown),
`results` (a folder with all of these; which models are kept; what `dlmexp collect` writes).
"""
