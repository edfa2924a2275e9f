"""Parsers of raw files, which are imported when a loader is first asked for. Read `registry` (what a loader is, and the
checks of what it returns), `published`, `own_table`."""
