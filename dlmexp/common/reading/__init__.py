"""The front door: everything that comes from outside is opened here, whoever wrote it.

Read `files` (plain files, archives, JSON, npz, MATLAB), `tables`. Sizes are limited first; then a
library reads inside `with reading(path):`, which turns whatever the library raises into
`dlmexp.common.errors.Unreadable` with the name of the file. The operating system's own errors (a
file that is not there, a broken disk) stay `OSError`. No other module of dlmexp uses a decoder:
ruff checks the list in pyproject.toml."""
