"""Parsers of raw files and generators of drawn data; importing this package registers them all as loaders."""

from dlmexp.data.parsers import drawn, own_table, published  # noqa: F401
