"""A cell on banana, and records of it and its like: what tests of running a sweep start from."""

from typing import Literal

from dlmexp.plan.cell import Cell
from dlmexp.records.record import Made, Record, Result

PLAIN = Cell(
    kind="fit", dataset="banana", data="abc", split="counts-v1", task="binary", likelihood="probit", kernel="rbf",
    ard=False, mean="constant", M=53, n=100, objective="log_dlm", variant="fixed", form="explicit",
    parameterisation="whitened", estimator="bmc", options={"samples": 10}, lr=0.1, minibatch=None, window=20,
    tolerance=1e-4, max_iterations=3000, epochs=None, evaluate="end", dtype="float64", seed=3, beta=0.1, base="feed",
)  # fmt: skip


def record(cell: Cell, status: Literal["done", "failed"] = "done", **validation: float) -> Record:
    """A record with these validation metrics and test metrics that are 0.5 larger; or one of a failure."""
    test = {name: value + 0.5 for name, value in validation.items()}
    result = Result(validation=validation, test=test, iterations=5, hyperparameters={"noise": 0.1})
    if status == "failed":
        result = Result(reason="a reason", iterations=7)
    return Record(
        key=cell.key, status=status, cell=cell, result=result, made=Made(host="h", time="2000-01-01T00:00:00Z")
    )
