"""Datasets: raw files, checksums, parsing, splits and normalisation.

The package knows nothing of Gaussian processes or Hydra. Read `dataset` (specification, loaders,
checks), `raw_files` (find, verify, load), `acquisition` (download, import), `published` (loaders),
`splits`. A user's own table: `values` (columns as arrays), `schema` (columns to features, in
training and prediction alike), `user_table` (its loader), `table_checks` (what is wrong with it).
"""
