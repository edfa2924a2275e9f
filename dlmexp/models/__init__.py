"""A trained cell as a model: its file, its predictions in the user's own units, its export to GPyTorch."""
