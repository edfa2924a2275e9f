"""A trained cell as a model.

Read `file` (its arrays in one file, and which model of a results folder is meant), `predictor` (its
predictions in the user's own units, on arrays and files), `diagnosis` (how it does on its own test
rows), `export` (the same model for GPyTorch)."""
