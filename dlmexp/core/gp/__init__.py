"""Sparse Gaussian processes as functions on tensors with a leading dimension B of cells.

Read `kernels` and `cholesky` first, then `posterior` (mu, v and KL of q) and `adjoints` (their
gradients). `closed_form` has the parts of objectives with a closed form over q. `collapsed` (ELBO,
square loss, power EP, the exact process), `structured` and `leave_one_out` are these objectives.
`precision` says what is float32, and sums over rows in pieces. `matrix_products` and `special` have
products and functions that torch lacks. `rbf_posterior` computes the marginals of `posterior`
faster on a CPU, `fused` has the work of all of them in Triton, for a GPU.

Names of matrices are those of docs/SPEC.md: Z are the M inducing inputs, Kuu, Kuf and Kff the
kernel matrices between them and N rows X, `Kuu = Luu Luu^T`, `A = Luu^-1 Kuf`. A gradient `d_K` is
that of the objective in K.
"""
