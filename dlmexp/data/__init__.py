"""Datasets: raw files, checksums, parsing, splits and normalisation. Knows nothing of Gaussian processes or Hydra.

Read `spec` (what `conf/dataset` says), `parsers` (files to arrays, checked), `raw_files` (which are there, downloads,
imports), `dataset` (load, list, check), `splits`. A user's own table: `schema` (columns to features, for
training and prediction alike), `parsers.own_table` (all that is wrong in one list).
"""
