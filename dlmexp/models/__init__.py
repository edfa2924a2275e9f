"""A trained cell as a model.

Read `file` (its arrays in one file), `predictor` (its predictions in the user's own units), `prediction_file` (those on
the rows of a whole file), `choice` (which model of a results folder is meant), `diagnosis` (how it does on its own test
rows), `export` (the same model for GPyTorch).
"""
