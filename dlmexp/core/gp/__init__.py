"""Sparse Gaussian processes as functions on tensors with a leading dimension B of cells.

A cell is one model: its rows, its hyperparameters and its q.

Read `kernels` and `cholesky` first, then `posterior` (mu, v and KL of q) and `adjoints` (their
gradients). `closed_form` has the common parts of objectives with a closed form over q; the
objectives themselves are in `collapsed` (ELBO, square loss, power EP, the exact process),
`structured` and `leave_one_out`. `precision` says what is float32, and sums over rows in pieces.
`matrix_products` and `special` have products and functions that torch lacks. `rbf_posterior`
computes the marginals of `posterior` faster on a CPU; `fused` has GPU kernels in Triton for the
large operations of these modules.

Names of matrices are those of docs/SPEC.md: Z are the M inducing inputs and X the inputs of N rows;
Kuu, Kuf and Kff are the kernel matrices within Z, between Z and X, and within X; `Kuu = Luu Luu^T`
and `A = Luu^-1 Kuf`. `d_K` is the gradient of the objective in K.
"""
