"""Sparse Gaussian processes as plain functions on tensors with a leading dimension B of independent cells.

`kernels`, `cholesky`: the pieces. `posterior`: mu, v and KL of q; `shared`: the same where many cells share one A;
`moments` -> `collapsed`, `square`: closed forms for regression; `fitc`; `predict`: at new inputs; `likelihoods`.
"""
