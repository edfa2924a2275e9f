"""A trained cell as a model.

Read in this order: `file` (its arrays in one file), `choice` (which model of a results folder is
used), `predictor` (its predictions in the units of the data), `predict_file` (predictions on the
rows of a file), `scores`, `importance` and `relevance` (how well it predicts, and from which
columns), `diagnosis` (all of this on its own test rows), `export` (the model for GPyTorch).
"""
