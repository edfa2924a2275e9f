"""Shapes of batches that stand for those of the paper's experiments."""

from typing import NamedTuple

from msgspec.structs import replace

from dlmexp.plan.cell import Cell

# Floating-point operations of the products in a step, in M x M x n: a triangle times a matrix, a square one times a
# matrix, and a symmetric product (`gp.posterior`, `gp.moments`).
PRODUCTS = 1 + 2 + 1


class Shape(NamedTuple):
    """B models at once, with n training rows, M inducing inputs and D features; what is aimed at, in model-steps/s."""

    n: int
    M: int
    D: int
    B: int
    form: str = "explicit"
    aim: float | None = None

    @property
    def label(self) -> str:
        what = "joint log-DLM" if self.form == "explicit" else "collapsed ELBO"
        return f"{what}, n={self.n} M={self.M} d={self.D} B={self.B}"

    @property
    def likelihood(self) -> str:
        return "probit" if self.form == "explicit" else "gaussian"

    @property
    def objective(self) -> str:
        return "log_dlm" if self.form == "explicit" else "elbo"

    @property
    def operations(self) -> float:
        """The least number of those in a step of one model: nothing that computes these products can be faster."""
        return PRODUCTS * float(self.M) ** 2 * self.n

    def batch(self) -> tuple[Cell, ...]:
        """Cells of this shape."""
        explicit = self.form == "explicit"
        first = Cell(
            kind="fit", dataset="made-up", data="", split="", kernel="rbf", ard=False, M=self.M, n=self.n,
            task="binary" if explicit else "regression", likelihood=self.likelihood, seed=0,
            mean="constant" if explicit else "zero", objective=self.objective, variant="joint", form=self.form,
            parameterisation="whitened", estimator="exact", options={}, lr=1e-3, minibatch=None, window=None, beta=1.0,
            tolerance=None, max_iterations=100_000, epochs=None, evaluate="end", dtype="float64",
        )  # fmt: skip
        return tuple(replace(first, beta=0.01 * 1e4 ** (i / self.B)) for i in range(self.B))


SHAPES = (
    Shape(1000, 74, 20, 90, aim=150_000),
    Shape(1000, 200, 8, 15, aim=30_000),
    Shape(2766, 206, 8, 5, "collapsed", aim=10_000),
    Shape(11000, 206, 8, 100, aim=7_000),
)  # what is aimed at on an H200
