"""Datasets: raw files, checksums, parsing, splits and normalisation. Knows nothing of Gaussian processes or Hydra.

Read `spec` (what `conf/dataset` says), `raw_files` and `acquire` (files and downloads), `parsers` (files to arrays),
`dataset` (load, cache, list, check), `splits`. A user's own table: `options`, `schema` (columns to features, for
training and prediction alike), `fit` (a schema learned, and all that is wrong in one list), `parsers.table`.
"""
