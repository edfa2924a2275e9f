"""Figures of results: the tidy table as pictures with captions.

A reader may take the modules in this order: `panels` (what a figure is made of), `declared` (the
figures of this package), `numbers` (from rows of the table to points), `kinds` (how each kind of
panel is measured and drawn), `layout` (a whole picture), then `drawn`, `notes` and `plot` (files
and captions, as `dlmexp plot` writes them). None of these loads torch.

Figures without panels have a module each: `leaderboard`, `verdicts`, and `predictions` and
`importance`, which show a trained model.
"""
