"""Readers of untrusted input.

Every file from outside is opened here, whoever wrote it: `files` reads plain files, archives, JSON
and npz, `tables` and `formats` read tables, `matlab` reads MATLAB files. Sizes are limited first.
Then a library reads inside `with reading(path):`, which turns whatever the library raises into
`dlmexp.common.errors.Unreadable` with the name of the file. The operating system's own errors (a
missing file, a broken disk) stay `OSError`. No other module of dlmexp decodes files: ruff checks
this by the list of banned functions in pyproject.toml.
"""
