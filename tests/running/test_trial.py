"""A step like those of a batch: it is the engine's own, for every kind of program."""

import pytest
import torch
from msgspec.structs import replace

from dlmexp.running.device import Target
from dlmexp.running.trial import program_like, step_like
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from tests.support.cells import ELBO, PLAIN

CPU = Target(torch.device("cpu"), torch.float64)
SMALL = {"n": 30, "M": 5}
REGRESSION = replace(ELBO, **SMALL, task="regression", likelihood="gaussian", mean="zero")
CASES = {
    "joint": (replace(ELBO, **SMALL), Joint),
    "fixed, sampled": (replace(PLAIN, **SMALL), Fixed),
    "unwhitened": (replace(ELBO, **SMALL, parameterisation="unwhitened"), Joint),
    "collapsed": (replace(REGRESSION, form="collapsed"), Collapsed),
    "minibatch": (replace(ELBO, n=500, M=5, minibatch=20, ard=True), Joint),
    "counts": (replace(PLAIN, **SMALL, task="count", likelihood="poisson", mean="zero"), Fixed),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_program_makes_steps(case):
    cell, kind = CASES[case]
    batch = tuple(replace(cell, seed=seed, beta=beta) for seed in (0, 3) for beta in (0.1, 1.0))
    program = program_like(batch, 3, CPU)
    assert type(program) is kind
    assert program.beta.tolist() == [0.1, 1.0, 0.1, 1.0]
    assert program.split.X.shape[-1] == 3
    assert program.entries == 4 * 5 * (20 if case == "minibatch" else 30)
    step = step_like(batch, 3, CPU)
    for _ in range(2):
        step()


def test_it_makes_more_steps_than_the_batch_would():
    step = step_like((replace(ELBO, **SMALL, max_iterations=2),), 3, CPU)
    for _ in range(5):
        step()
