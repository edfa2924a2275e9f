"""What a protocol makes of one size: the training settings of a cell whose q is optimised explicitly."""

from typing import Any

from dlmexp.config import TrainingConfig

LARGE = "large"  # the kind of data with the airline split; every other kind is named for its task
UNTRAINED: dict[str, Any] = {
    "lr": 0.0, "window": None, "tolerance": None, "max_iterations": None, "criterion": "mean", "final_lr": None,
    "decay": None, "epsilon": 1e-8, "resolution": None,
}  # fmt: skip
CLOSED_FORM: dict[str, Any] = {"minibatch": None, "minibatch_rows": "epochs"}  # of q: all rows at every step
# What kernels, likelihoods and means start from unless a protocol says otherwise.
INITIAL = {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1, "mean": 0.0}


def kind_of(task: str, split: str) -> str:
    """The key of `training` for data of a task, split in some way."""
    return LARGE if split.startswith("airline") else task


def treated_apart(training: TrainingConfig, name: str) -> list[str]:
    """The values for single methods and estimators beside a general one: `by_method.fitc.initial.noise` and the like
    for `initial.noise`. Whoever types the general one means them too."""
    if name == "lr":
        return [f"estimator_lr.{estimator}" for estimator in training.estimator_lr]
    group, _, parameter = name.partition(".")
    return [
        f"by_method.{method}.{name}"
        for method, own in training.by_method.items()
        if (group == "initial" and parameter in own.initial) or (name == "collapsed" and own.collapsed is not None)
    ]


def trained(training: TrainingConfig, n: int) -> dict[str, Any]:
    """The fields of a cell that follow from the training settings and the number of training rows."""
    minibatch = training.minibatch if training.minibatch and n > training.minibatch else None
    window = None if training.epochs else training.window
    return {
        "lr": training.minibatch_lr if minibatch else training.lr,
        "minibatch": minibatch,
        "minibatch_rows": training.minibatch_rows if minibatch else "epochs",
        "window": window,
        "tolerance": None if window is None else training.tolerance,
        "criterion": "mean" if window is None else training.criterion,
        "max_iterations": None if training.epochs else training.max_iterations,
        "epochs": training.epochs,
        "inducing": training.inducing,
        "final_lr": training.final_lr,
        "decay": training.decay,
        "epsilon": training.epsilon,
        "resolution": training.resolution,
        "noise_floor": training.noise_floor,
    }
