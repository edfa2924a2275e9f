"""Records on disk and the one table made of them. Never loads torch. Read in this order:

`record` (a cell, what came out of it, how it was made), `store` (what was asked for, written when
it is asked; one JSON file per cell) with `packed` (many cells in one Parquet file), `table`
(selection of beta, the tidy table, settings and filters), `results` (a folder with all of these;
which models stay; what `collect` writes)."""
