"""A trained cell as a model.

Read `file` (its arrays in one file), `choice` (which model of a results folder is meant),
`predictor` (its predictions in the user's own units), `predict_file` (the same on files),
`diagnosis` (how it does on its own test rows), `export` (the same model for GPyTorch).
"""
