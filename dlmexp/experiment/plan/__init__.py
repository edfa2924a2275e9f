"""Planning: from overrides that a user types to cells in batches.

Read in this order: `overrides` (shorthand, names, values, messages), `compose` (Hydra makes a
config, which is checked), `methods` (changes of methods), `grid` (the cells that a config requests,
and their settings), `cell` (a cell and its key, settings, and which cells are trained together).
"""
