"""Sparse Gaussian processes as plain functions on tensors with a leading dimension B of independent
cells.

Read `kernels` and `cholesky` first, then `posterior`: mu, v and KL of q. Closed forms over q:
`collapsed` (ELBO, square loss, power EP, the exact process). `likelihoods`: p(y|f). `precision`
says what is float32, and sums over rows in pieces; `matrix_products`, `special`: matrices and functions
that torch lacks. The same faster: `rbf_posterior` on a CPU, `fused` on a GPU."""
