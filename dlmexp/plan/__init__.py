"""From what is typed to cells in batches. Needs torch only for what the registries know. Read in this order:

`overrides` (short forms, names, sentences), `compose` (Hydra makes a config), `checks` (values, and what goes with
what), `grid` (which cells it asks for, under which `setting`), `cell` (a cell and its key), `batches` (which cells are
trained together, and in which order).
"""
