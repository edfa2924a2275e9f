"""From what is typed to cells in batches. Needs torch only for what the registries know. Read in
this order:

`overrides` (short forms, names, values, sentences), `compose` (Hydra makes a config, which is
checked), `grid` (which cells it asks for, under which setting), `cell` (a cell and its key,
settings, and which cells are trained together)."""
