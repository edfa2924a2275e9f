"""Parsers of raw files; importing this package registers them all as loaders. Read `registry` (what a loader is, and
the checks of what it returns), `published`, `own_table`."""

from dlmexp.data.parsers import own_table, published  # noqa: F401
