"""The front door: everything that comes from outside is opened here, whoever wrote it.

Files of results folders, archives, arrays, MATLAB files, JSON, tables and HTTP answers. Each has limits (bytes,
members, depth, shapes), and whatever is wrong with one is raised as `dlmexp.errors.Unreadable`. The operating system's
own errors (a file that is not there, a broken disk) stay `OSError`. No other module of dlmexp imports a decoder:
`tests/test_architecture.py` has the list.
"""
