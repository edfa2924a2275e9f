"""Where the time of a large training step goes on a GPU: each kernel beside what limits it.

python -m scripts.benchmark gpu kernels
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dlmexp.core.gp.adjoints import excess_product
from dlmexp.core.gp.matrix_products import gram, triangular_product
from scripts.benchmark.measure import fastest

COLUMNS = ("n", "B", "operation", "ms", "of the product limit", "of the memory limit")
BYTES = 8  # of a number


class Operation(NamedTuple):
    """An operation of a step, with what it has to do at least.

    Attributes:
        name: What it computes.
        call: Does it.
        products: Multiplications and additions, in M x M x n of a model.
        passes: How often it reads or writes an array [B, M, n].
    """

    name: str
    call: Callable[[], object]
    products: float
    passes: float


def rows(
    shapes: Sequence[tuple[int, int, int, int]], seconds: float, product_limit: float
) -> Iterator[list[str]]:
    """Yield the lines of the table for shapes (n, M, D, B)."""
    memory_limit = memory_rate()
    for n, M, D, B in shapes:
        total = 0.0
        for operation in operations(n, M, D, B):
            took = fastest({"": operation.call}, seconds, "cuda")[""]
            total += took
            flops = operation.products * M**2 * n * B
            moved = operation.passes * BYTES * B * M * n
            yield [
                str(n),
                str(B),
                operation.name,
                f"{1e3 * took:.3f}",
                f"{flops / took / product_limit:.0%}",
                f"{moved / took / memory_limit:.0%}",
            ]
        yield [str(n), str(B), "together", f"{1e3 * total:.3f}", "", ""]


def operations(n: int, M: int, D: int, B: int) -> list[Operation]:
    """Return the operations of a step of the joint log-DLM on arrays [B, M, n]."""
    from dlmexp.core.gp.fused.stationary import Outer, covariance, parameter_gradients, right_factor
    from dlmexp.core.gp.fused.tile_products import fit_and_gain

    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cuda")

    wide = 32 * -(-n // 32)
    Z = draw(B, M, D)
    lengthscale = torch.full((B, 1), 2.0, dtype=torch.float64, device="cuda")
    outputscale = torch.ones(B, dtype=torch.float64, device="cuda")
    right = right_factor(draw(B, n, D), lengthscale, wide)
    Luu_inv = draw(B, M, M).tril() / M
    L = draw(B, M, M).tril() / M
    w = draw(B, M)
    g = draw(B, wide)
    h = draw(B, wide)
    Kuf = covariance(Z, right, lengthscale, outputscale, 0)
    A = triangular_product(Luu_inv, Kuf)
    V = excess_product(Luu_inv, L, A)
    return [
        Operation("Kuf", lambda: covariance(Z, right, lengthscale, outputscale, 0), 0, 1),
        Operation("A = Luu^-1 Kuf", lambda: triangular_product(Luu_inv, Kuf), 1, 2),
        Operation("the same by cuBLAS", lambda: torch.bmm(Luu_inv, Kuf), 2, 2),
        Operation("V = Luu^-T S A", lambda: excess_product(Luu_inv, L, A), 2, 2),
        Operation("fit, gain", lambda: fit_and_gain(w, Kuf, V), 0, 2),
        Operation(
            "gradients of Z, l, s",
            lambda: parameter_gradients(
                V, Kuf, Z, right, lengthscale, outputscale, 0, outer=Outer(2 * h, w, g)
            ),
            0,
            2,
        ),
        Operation("A diag(h) A^T", lambda: gram(A, h), 1, 1),
        Operation("the same by cuBLAS", lambda: torch.bmm(A * h.unsqueeze(-2), A.mT), 2, 4),
        Operation("A g", lambda: A @ g.unsqueeze(-1), 0, 1),
    ]


def memory_rate() -> float:
    """Return the bytes per second that a copy of a large array reads and writes."""
    source = torch.empty(2**28, dtype=torch.float64, device="cuda")
    target = torch.empty_like(source)
    seconds = fastest({"": lambda: target.copy_(source)}, 0.5, "cuda")[""]
    return 2 * BYTES * source.numel() / seconds
