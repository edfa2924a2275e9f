"""Parsers of raw files and generators of drawn data; importing this package registers them all as loaders. Read
`registry` (what a loader is, and the checks of what it returns), `published`, `drawn`, `own_table`."""

from dlmexp.data.parsers import drawn, own_table, published  # noqa: F401
