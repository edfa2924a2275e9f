"""Sparse Gaussian processes as plain functions on tensors with a leading dimension B of independent cells.

`hyperparameters`: how they are declared and passed. `kernels` (`gpytorch_kernel`: any of GPyTorch's), `cholesky`: the
pieces. `posterior`: mu, v and KL of q; `shared`: the same where many cells share one A. Closed forms over q (`closed`
says what they have in common): `moments` -> `collapsed` (regression ELBO, any beta) and `square`; `fitc`. `predict`:
mu, v at new inputs. `rows`: sums in pieces of bounded memory. `likelihoods`: p(y|f).
"""
