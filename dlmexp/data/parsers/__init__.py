"""Parsers of raw files and generators of drawn data; importing this package registers them all as loaders."""

from dlmexp.data.parsers import airline, california, delimited, drawn, flights, matlab, table  # noqa: F401
