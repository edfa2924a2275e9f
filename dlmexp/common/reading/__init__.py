"""Readers of untrusted input.

Every file is opened here, whoever wrote it: `files` reads plain files, archives, JSON and npz,
`tables` and `formats` read tables, `matlab` reads MATLAB files. First the size of a file is
checked. Then a library reads it inside `with reading(path):`, which turns whatever the library
raises into `dlmexp.common.errors.Unreadable` with the name of the file. Errors of the operating
system (a missing file, a broken disk) stay `OSError`. No other module of dlmexp decodes files: ruff
enforces this by the list of banned functions in pyproject.toml.
"""
