"""The table of docs/SPEC.md, section 6: what each protocol does with each kind of data."""

from typing import Any

SOFTPLUS_0 = 0.6931471805599453
PLAIN, SMALL = {"lengthscale": 1.0, "outputscale": 1.0}, {"lengthscale": SOFTPLUS_0, "outputscale": SOFTPLUS_0}
EPOCHS = {"minibatch_rows": "epochs", "epochs": None, "estimator_lr": {}, "inducing": "first", "by_method": {}}
CONSTANT = {"final_lr": None, "decay": None, "epsilon": 1e-8, "resolution": None, "tolerance": 1e-4}
DECAYING = {
    **EPOCHS, "lr": 0.1, "final_lr": 1e-4, "decay": 6000, "epsilon": 1e-6, "resolution": 1 / 256, "minibatch": None,
    "minibatch_lr": 0.1, "window": 500, "tolerance": 2e-5, "criterion": "relative", "max_iterations": 20_000,
    "parameterisation": ["whitened"],
}  # fmt: skip
REGRESSION = {
    **EPOCHS, **CONSTANT, "lr": 0.1, "minibatch": 6000, "minibatch_lr": 0.1, "window": 50, "criterion": "mean",
    "max_iterations": 5000, "initial": {**PLAIN, "noise": 0.1}, "parameterisation": ["whitened"],
}  # fmt: skip
BINARY = {
    **EPOCHS, **CONSTANT, "lr": 0.1, "minibatch": None, "minibatch_lr": 0.1, "window": 20, "criterion": "mean",
    "max_iterations": 3000, "initial": PLAIN, "parameterisation": ["whitened", "unwhitened"],
}  # fmt: skip
LARGE = {
    **EPOCHS, **CONSTANT, "lr": 1e-3, "minibatch": 1000, "minibatch_lr": 1e-3, "window": None, "criterion": "mean",
    "max_iterations": 39_100, "initial": PLAIN, "parameterisation": ["whitened"],
}  # fmt: skip
AS_RELEASED = {"initial": SMALL, "parameterisation": ["unwhitened"]}
SLOW = {**AS_RELEASED, "lr": 0.01, "minibatch_lr": 0.01}
TABLE: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "regression": REGRESSION,
        "binary": BINARY,
        "count": {**BINARY, "estimator_lr": {"ups": 0.01}},
        "large": LARGE,
    },
    "released": {
        "regression": {
            **REGRESSION, "minibatch_rows": "afresh", "criterion": "sum", "inducing": "last",
            "by_method": {
                "beta_elbo": {"variant": None, "collapsed": False, "initial": {"noise": 1.0}},
                "joint_log_dlm": {"variant": None, "collapsed": None, "initial": {"noise": 1.0}},
                "ppgpr": {"variant": None, "collapsed": None, "initial": {"noise": 1.0}},
                "fitc": {"variant": "fixed", "collapsed": None, "initial": {}},
            },
        },
        "binary": {**BINARY, **SLOW},
        "count": {**BINARY, **SLOW, "estimator_lr": {"ups": 0.01}},
        "large": {**LARGE, **AS_RELEASED},
    },
    "annealed": {
        "regression": {**DECAYING, "initial": {**PLAIN, "noise": 0.1}},
        "binary": {**DECAYING, "initial": PLAIN},
        "count": {**DECAYING, "initial": PLAIN},
        "large": {
            **LARGE, "final_lr": 1e-5, "decay": 39_000, "max_iterations": 39_000, "tolerance": 2e-5,
            "criterion": "relative",
        },
    },
}  # fmt: skip
BETA = {"ratio": 2.0, "smallest": 0.01, "first": 1.0, "coarse_above": None, "coarse_ratio": None, "zero": False}
BETAS = {
    "paper": BETA,
    "released": {**BETA, "first": 2.0, "coarse_above": 500.0, "coarse_ratio": 4.0},
    "annealed": {**BETA, "zero": True},
}
SELECTIONS = {"paper": "reported", "released": "nll", "annealed": "reported"}


def betas(protocol: str, n: int) -> list[float]:
    """The grid of a protocol, worked out anew."""
    following, found = float(n if protocol != "released" else n / 2), []
    while following >= 0.01:
        found.append(following)
        following /= 4 if protocol == "released" and following > 500 else 2
    return found + ([0.0] if protocol == "annealed" else [])
