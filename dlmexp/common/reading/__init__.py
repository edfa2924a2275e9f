"""Readers of untrusted input.

Everything that comes from outside is opened here, whoever wrote it. Read `files` (plain files,
archives, JSON, npz), `tables` (CSV, Parquet, rows of text), `matlab`. Sizes are limited first; then
a library reads inside `with reading(path):`, which turns whatever the library raises into
`dlmexp.common.errors.Unreadable` with the name of the file. The operating system's own errors (a
missing file, a broken disk) stay `OSError`. No other module of dlmexp uses a decoder: ruff checks
the list in pyproject.toml.
"""
