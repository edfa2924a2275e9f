"""Sparse Gaussian processes as functions on tensors with a leading dimension B of cells.

Read `kernels` and `cholesky` first, then `posterior` (mu, v and KL of q) and `adjoints` (their
gradients). `collapsed` has the objectives with a closed form over q (ELBO, square loss, power EP,
the exact process), `closed_form` what they are made of. `precision` says what is float32, and sums
over rows in pieces. `matrix_products` and `special` have products and functions that torch lacks.
`rbf_posterior` does the same faster on a CPU, `fused` on a GPU.
"""
