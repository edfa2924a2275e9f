"""A trained cell as a model.

Read in this order: `file` (the arrays of a model in one file), `choice` (which model of a results
folder is used), `predictor` (predictions in the units of the data), `predict_file` (predictions on
the rows of a file), `scores`, `importance` and `relevance` (how well a model predicts, and from
which columns), `diagnosis` (all of this on the test rows of the model), `export` (the model for
GPyTorch).
"""
