"""Datasets: raw files, checksums, parsing, splits and normalisation.

The package knows nothing of Gaussian processes or Hydra. Read its modules in this order: `dataset`
(specification, loaders, checks), `raw_files` (find, verify, load), `acquisition` (download,
import), `published` (loaders), `splits`. These are for a user's own table: `values` (columns as
arrays), `schema` (how columns become features, in training and in prediction), `user_table` (the
loader), `table_checks` (problems of a table).
"""
