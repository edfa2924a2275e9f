"""Datasets: raw files, checksums, parsing, splits and normalisation. Knows nothing of Gaussian
processes or Hydra.

Read `dataset` (what `conf/dataset` says, loaders, checks), `published` (the loaders), `raw_files`
(load, list, check, fetch, import), `splits`. A user's own table: `schema` (columns to features, for
training and prediction alike), `own_table` (all that is wrong in one list)."""
