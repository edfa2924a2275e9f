"""From what is typed to cells in batches. Torch is needed only for what the registries know.

Read in this order: `overrides` (shorthand, names, values, messages), `compose` (Hydra makes a
config, which is checked), `grid` (which cells it asks for, under which setting), `cell` (a cell and
its key, settings, and which cells are trained together).
"""
