"""A trained cell as a model. `file`: its arrays in one file; `predictor`: its predictions in the user's own units, as
`tables` makes them for whole files; `choose`: which model of a results folder is meant; `diagnosis`: how it does on its
own test rows; `export`: the same model for GPyTorch."""
