"""Checks of a plugin for its author: `dlmexp test MODULE`.

The checks use everything that the module registers, and the files of its folder `conf`, on made-up
rows. The command prints the result of each check in one line.
"""

import math
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import registered_by

# The sizes of made-up batches: rows and features of a cell, and cells of a batch.
ROWS = 60
FEATURES = 3
CELLS = 2
ITERATIONS = 20  # of training on made-up rows
DTYPES = (torch.float64, torch.float32)
N_ESTIMATES = 200  # estimates whose mean is compared with the log loss
TASKS = ("regression", "binary", "count")
PROBABILITY_TOLERANCE = 1e-3  # how far the sum of all probabilities may be from 1
MAX_LOSS_ERROR = 0.1  # of the log loss of a row, if it is computed by quadrature
N_COUNTS = 400  # the probabilities of the counts 0, ..., N_COUNTS - 1 are added up
# The optional predictions that likelihoods of a task usually have.
USUAL_PREDICTIONS = {"regression": ("interval", "std"), "count": ("interval",)}
PUBLISHED_RESULTS = Path("results/paper")


class SkipError(Exception):
    """A check can't be made here; the message says why."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        subject: What was checked, such as "kernel rational: matrices".
        outcome: "ok", "failed" or "skipped".
        message: What the check has measured, or what is wrong, or why it was skipped.
    """

    subject: str
    outcome: str
    message: str

    def __str__(self) -> str:
        return f"{self.outcome:8} {self.subject}: {self.message}"


def check_plugin(name: str, results: Path | None = None) -> Iterator[Check]:
    """Check a plugin that has been imported.

    Args:
        name: The module.
        results: The results folder from which figures are drawn, and on which claims are judged.
            None: the published results, if they are present.

    Yields:
        The result of each check as soon as it is known.
    """
    module = import_module(name)
    registered = registered_by(name)
    files = _yaml_files(module)
    yield _run_check(f"module {name}", _list_contents, registered, files)
    for kind, check_item in CHECK_OF_KIND.items():
        for item in registered.get(kind, []):
            yield from check_item(item)
    for path in files.get("dataset", []):
        yield _run_check(f"dataset {path.stem}", check_dataset, path.stem)
    for path in files.get("method", []):
        yield from check_method(path.stem)
    for path in files.get("experiment", []):
        yield _run_check(f"experiment {path.stem}", check_experiment, path.stem)
    folder = results or PUBLISHED_RESULTS
    for item in registered.get("figure", []):
        yield _run_check(f"figure {item}", check_figure, item, folder)
    for item in registered.get("claim", []):
        yield _run_check(f"claim {item}", check_claim, item, folder)


def _run_check(subject: str, check: Callable[..., str], *arguments: Any) -> Check:
    """Run a check, and return its result.

    Args:
        subject: What is checked.
        check: A function that returns what it has measured. It raises `SkipError` if the check
            can't be made, and any other exception if the check fails.
        arguments: The arguments of the function.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Check(subject, "ok", check(*arguments))
    except SkipError as reason:
        return Check(subject, "skipped", str(reason))
    except (UserError, AssertionError) as error:
        return Check(subject, "failed", str(error))
    except Exception as error:  # a plugin can raise anything
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(innermost.filename).name}, line {innermost.lineno}"
        return Check(subject, "failed", f"{type(error).__name__}: {error} ({place})")


def _yaml_files(module: ModuleType) -> dict[str, list[Path]]:
    """Return the YAML files in a module's folder `conf`, by their config group."""
    if module.__file__ is None:
        return {}
    files: dict[str, list[Path]] = {}
    conf = Path(module.__file__).parent / "conf"
    for path in sorted(conf.glob("*/*.yaml")):
        files.setdefault(path.parent.name, []).append(path)
    return files


def _list_contents(registered: dict[str, list[str]], files: dict[str, list[Path]]) -> str:
    """Return the registered names and the files of `conf` in one line.

    Raises:
        UserError: The module registers nothing, and has no files in `conf`.
    """
    parts: list[str] = []
    for kind, items in registered.items():
        parts.append(f"{kind} {', '.join(map(str, items))}")
    for group, paths in files.items():
        names = [path.stem for path in paths]
        parts.append(f"conf/{group}: {', '.join(names)}")
    if not parts:
        raise UserError(
            "registers nothing and has no folder conf; import the modules that register something"
        )
    return "; ".join(parts)


def _require(condition: bool, problem: str) -> None:
    """Raise UserError with the problem unless the condition is true."""
    if not condition:
        raise UserError(problem)


def _check_shape(value: Any, expected: tuple[int, ...], name: str) -> None:
    kind = type(value).__name__
    _require(isinstance(value, Tensor), f"{name} is a {kind}, not a tensor")
    shape = list(value.shape)
    _require(value.shape == expected, f"{name} has the shape {shape}, not {expected}")


def _check_finite(value: Tensor, name: str) -> None:
    is_finite = torch.isfinite(value)
    count = int((~is_finite).sum())
    _require(count == 0, f"{name} has {count} values that are not finite, of {value.numel()}")


def _check_gradients(value: Tensor, leaves: dict[str, Tensor]) -> None:
    """Check that the sum of `value` has a finite gradient in every leaf.

    Raises:
        UserError: `value` is detached or does not depend on a leaf, or a gradient is not finite.
    """
    _require(value.requires_grad, "its value has no gradient: is something detached?")
    gradients = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        _require(gradient is not None, f"its value does not depend on {name}")
        assert gradient is not None  # `_require` has raised an error otherwise
        _check_finite(gradient, f"the gradient in {name}")


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_kernel(name: str) -> Iterator[Check]:
    """Check the matrices and gradients of a kernel."""
    yield _run_check(f"kernel {name}: matrices", _kernel_matrices, name)
    yield _run_check(f"kernel {name}: gradients", _kernel_gradients, name)


def _kernel_inputs(name: str, dtype: torch.dtype) -> tuple[Any, Tensor, Tensor, dict[str, Tensor]]:
    """Return a kernel, X [CELLS, ROWS, FEATURES], fewer rows Z, and initial hyperparameters."""
    from dlmexp.core.gp.kernels import KERNELS

    kernel = KERNELS[name]
    X = torch.randn(CELLS, ROWS, FEATURES, generator=_generator(), dtype=torch.float64).to(dtype)
    Z = X[:, : ROWS // 4] + 0.1
    parameters = kernel.parameters(FEATURES, ard=True)
    hyper = {key: parameter.start(X, CELLS) for key, parameter in parameters.items()}
    return kernel, X, Z, hyper


def _kernel_matrices(name: str) -> str:
    for dtype in DTYPES:
        kernel, X, Z, hyper = _kernel_inputs(name, dtype)
        K = kernel(X, X, hyper)
        _check_shape(K, (CELLS, ROWS, ROWS), "k(X, X)")
        _check_shape(kernel(Z, X, hyper), (CELLS, Z.shape[1], ROWS), "k(Z, X)")
        _require(K.dtype == dtype, f"k(X, X) is {K.dtype} for inputs of {dtype}")
        _check_finite(K, "k(X, X)")
        # How much rounding may change an entry of the matrix
        relative_tolerance = 1e-8 if dtype == torch.float64 else 1e-4
        tolerance = relative_tolerance * float(K.abs().max())
        asymmetry = float((K - K.mT).abs().max())
        _require(asymmetry <= tolerance, "k(X, X) is not symmetric")
        diagonal = kernel.diagonal(X, hyper)
        _check_shape(diagonal, (CELLS, ROWS), "diagonal(X)")
        difference = diagonal - K.diagonal(dim1=-2, dim2=-1)
        is_diagonal = float(difference.abs().max()) <= 10 * tolerance
        _require(is_diagonal, "diagonal(X) is not the diagonal of k(X, X)")
        smallest = float(torch.linalg.eigvalsh(K.double()).min())
        # Changes of the entries by `tolerance` change an eigenvalue by at most ROWS times as much.
        _require(
            smallest >= -ROWS * tolerance,
            f"k(X, X) has the negative eigenvalue {smallest:.2g}: it is no kernel",
        )
    return f"k(X, X) [{CELLS}, {ROWS}, {ROWS}], symmetric, no negative eigenvalue, both dtypes"


def _kernel_gradients(name: str) -> str:
    kernel, X, Z, hyper = _kernel_inputs(name, torch.float64)
    Z = Z.clone().requires_grad_()
    hyper = {key: value.clone().requires_grad_() for key, value in hyper.items()}
    leaves = {"Z": Z, **hyper}
    _check_gradients(kernel(Z, X, hyper), leaves)
    return f"finite in {', '.join(leaves)}"


def check_likelihood(name: str) -> Iterator[Check]:
    """Check the probabilities, the log loss and the predictions of a likelihood."""
    yield _run_check(f"likelihood {name}: probabilities", _probabilities, name)
    yield _run_check(f"likelihood {name}: log loss", _log_loss, name)
    yield _run_check(f"likelihood {name}: predictions", _predictions, name)


def _targets(task: str) -> Tensor:
    """Return made-up targets [CELLS, ROWS] of a task."""
    normal = torch.randn(CELLS, ROWS, generator=_generator(1), dtype=torch.float64)
    if task == "regression":
        return normal
    if task == "binary":
        return (normal > 0).double()
    return torch.poisson(normal.exp(), generator=_generator(2))


def _likelihood(name: str) -> tuple[Any, dict[str, Tensor]]:
    """Return a likelihood for CELLS cells, and its parameters with gradients."""
    from dlmexp.core.likelihoods import LIKELIHOODS

    likelihood_class = LIKELIHOODS[name]
    example = torch.zeros(CELLS, dtype=torch.float64)  # parameters get its dtype and device
    hyper = {}
    for parameter_name, parameter in likelihood_class.parameters.items():
        hyper[parameter_name] = parameter.start(example, CELLS).requires_grad_()
    return likelihood_class.from_hyper(hyper), hyper


def _probabilities(name: str) -> str:
    """Check that the probabilities of all targets add up to 1, and return how exactly."""
    likelihood, _ = _likelihood(name)
    f = torch.linspace(-1.5, 1.5, CELLS * ROWS, dtype=torch.float64)
    f = f.reshape(CELLS, ROWS)
    y, spacing = _all_targets(likelihood.task, f)
    log_p = likelihood.over_samples().log_prob(f.unsqueeze(-2), y)
    _check_shape(log_p, tuple(y.shape), "log_prob(f, y)")
    totals = (log_p.exp() * spacing).sum(-2)
    largest_error = float((totals - 1).abs().max())
    sign = "+" if totals.max() > 1 else "-"
    _require(
        largest_error <= PROBABILITY_TOLERANCE,
        f"the probabilities of all y add up to 1 {sign} {largest_error:.2g}",
    )
    return f"for all y they add up to 1, to {largest_error:.0e}"


def _all_targets(task: str, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return a grid of L targets [CELLS, L, ROWS], and the distance [L, 1] of each from the next.

    The sum of p(y|f) times the distance over the grid is the total probability. For labels and
    counts, the distance is 1. For regression, the grid depends on f [CELLS, ROWS]: distances are
    small near y = f, and grow away from it.
    """
    if task == "regression":
        # y - f = 1e-3 sinh(t), so dy = 1e-3 cosh(t) dt
        t = torch.linspace(-16.0, 16.0, 20_001, dtype=torch.float64)[:, None]
        y = f.unsqueeze(-2) + 1e-3 * t.sinh()
        dt = t[1] - t[0]
        return y, 1e-3 * t.cosh() * dt
    n_values = 2 if task == "binary" else N_COUNTS
    values = torch.arange(n_values, dtype=torch.float64)[:, None]
    y = values.expand(CELLS, n_values, ROWS)
    return y, torch.ones(n_values, 1, dtype=torch.float64)


def _marginals() -> tuple[Tensor, Tensor]:
    """Return made-up means and variances [CELLS, ROWS] of f."""
    mu = torch.randn(CELLS, ROWS, generator=_generator(3), dtype=torch.float64)
    uniform = torch.rand(CELLS, ROWS, generator=_generator(4), dtype=torch.float64)
    return mu, uniform + 0.1


def _log_loss(name: str) -> str:
    """Check log_loss and elbo_loss, their gradients, and the error of the quadrature."""
    for method in ("log_loss", "elbo_loss"):
        likelihood, hyper = _likelihood(name)
        mu, v = _marginals()
        leaves = {"mu": mu.requires_grad_(), "v": v.requires_grad_(), **hyper}
        y = _targets(likelihood.task)
        values = getattr(likelihood, method)(mu, v, y)
        _check_shape(values, (CELLS, ROWS), method)
        _check_finite(values, method)
        _check_gradients(values, leaves)
    errors = likelihood.log_loss_error(mu.detach(), v.detach(), y)
    error = float(errors.detach().max())
    _require(
        error < MAX_LOSS_ERROR,
        f"log_loss of a row is wrong by {error:.2g}: define kinks(y) in the likelihood",
    )
    return f"log_loss and elbo_loss with gradients in {', '.join(leaves)}; right to {error:.0e}"


@torch.no_grad()
def _predictions(name: str) -> str:
    """Check metrics and predictions, and return which ones the likelihood has."""
    likelihood, _ = _likelihood(name)
    mu, v = _marginals()
    y = _targets(likelihood.task)
    available = []
    for metric, score in likelihood.metrics.items():
        values = score(likelihood, mu, v, y)
        _check_shape(values, (CELLS, ROWS), f"metric {metric}")
        _check_finite(values, f"metric {metric}")
        available.append(f"metric {metric}")
    mean = likelihood.mean(mu, v)
    _check_shape(mean, (CELLS, ROWS), "mean")
    _check_finite(mean, "mean")
    interval = likelihood.interval(mu, v)
    if interval is not None:
        lower, upper = interval
        is_ordered = bool((lower <= upper).all())
        _require(is_ordered, "interval: its lower end lies above its upper end")
        available.append("interval")
    if likelihood.std(mu, v) is not None:
        available.append("std")
    usual = USUAL_PREDICTIONS.get(likelihood.task, ())
    missing = [prediction for prediction in usual if prediction not in available]
    note = f"; no {' and no '.join(missing)}, so `predict` leaves them out" if missing else ""
    return f"mean, {', '.join(available) or 'no metric of its own'}{note}"


def check_estimator(name: str) -> Iterator[Check]:
    """Check values and gradients of an estimator for a likelihood of each task."""
    for likelihood in ("gaussian", "probit", "poisson"):
        yield _run_check(f"estimator {name}: {likelihood}", _estimates, name, likelihood)


def _estimates(name: str, likelihood_name: str) -> str:
    """Check the loss and its gradients, and return how far the mean loss is from the log loss."""
    from dlmexp.core.estimators import ESTIMATORS
    from dlmexp.core.estimators.draws import Draws

    options = _default_options(name)
    estimator = ESTIMATORS[name](**options)
    likelihood, _ = _likelihood(likelihood_name)
    try:
        estimator.check(type(likelihood))
    except UserError as error:  # the estimator is not for this likelihood
        raise SkipError(str(error)) from None
    mu, v = _marginals()
    leaves = {"mu": mu.requires_grad_(), "v": v.requires_grad_()}
    y = _targets(likelihood.task)
    draws = Draws.fresh()
    loss, _ = estimator.loss_and_acceptance(likelihood, mu, v, y, draws)
    _check_shape(loss, (CELLS, ROWS), "the loss")
    _check_finite(loss, "the loss")
    _check_gradients(loss, leaves)
    with torch.no_grad():
        exact = likelihood.log_loss(mu, v, y).mean()
        estimates = [estimator(likelihood, mu, v, y, draws).mean() for _ in range(N_ESTIMATES)]
        mean_estimate = torch.stack(estimates).mean()
        difference = float(mean_estimate - exact)
    settings = [f"{option}={value}" for option, value in options.items()]
    listed = ", ".join(settings) or "no options"
    return f"{listed}: finite, with gradients; its mean is {difference:+.1e} off the log loss"


def _default_options(name: str) -> dict[str, Any]:
    """Return the options of an estimator in conf/estimator: the first value of each.

    Raises:
        UserError: The estimator has no file in conf/estimator.
    """
    from omegaconf import OmegaConf

    from dlmexp.experiment.plan.compose import compose

    cfg = compose([f"estimator={name}"])
    estimators = OmegaConf.to_container(OmegaConf.create(cfg.estimator))
    assert isinstance(estimators, dict)
    options = estimators[name] or {}
    for option, value in options.items():
        if isinstance(value, list):
            options[option] = value[0]
    return options


def check_dataset(name: str) -> str:
    """Load a dataset, and return its size; skip it if its files are missing."""
    from dlmexp.common.paths import data_root
    from dlmexp.data.dataset import read_spec
    from dlmexp.data.raw_files import find_files, how_to_get, load

    spec = read_spec(name)
    root = data_root(None)
    inventory = find_files(spec, root)
    if inventory.state not in ("ready", "drawn"):
        raise SkipError(how_to_get(spec, inventory, root))
    data = load(spec, root)
    rows, features = data.X.shape
    _require(bool(np.isfinite(data.X).all()), "X has values that are not finite")
    return f"{rows} rows, {features} features, {data.task}"


def check_method(name: str) -> Iterator[Check]:
    """Train by a method for a few steps on made-up rows of each task."""
    for task in TASKS:
        yield _run_check(f"method {name}: {task}", _tiny_run, name, task)


def _made_up_rows(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features [3 * ROWS, 2] and targets [3 * ROWS] of a task."""
    random = np.random.default_rng(0)
    X = random.normal(size=(3 * ROWS, 2))
    signal = np.sin(2 * X[:, 0])
    noise = 0.1 * random.normal(size=len(X))
    if task == "binary":
        return X, (signal > 0).astype(float)
    if task == "count":
        return X, random.poisson(np.exp(signal)).astype(float)
    return X, signal + noise


def _tiny_run(method: str, task: str) -> str:
    """Train by a method on made-up rows, and return how long a step takes, and the test NLL.

    Raises:
        UserError: training has failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        cells = _cells_of_tiny_run(method, task, folder)
    failed = cells[cells["status"] == "failed"]
    if len(failed):
        raise UserError(str(failed["reason"].iloc[0]))
    done = cells[cells["status"] == "done"]
    n_steps = max(1, done["iterations"].sum())
    milliseconds_per_step = 1e3 * done["seconds"].sum() / n_steps
    message = f"{len(done)} fits of {ITERATIONS} steps, {milliseconds_per_step:.1f} ms a step"
    nll = done["test_nll"].mean()
    return message if math.isnan(nll) else f"{message}, test NLL {nll:.3f}"


def _cells_of_tiny_run(method: str, task: str, folder: str) -> pd.DataFrame:
    """Return the cells of a run on made-up rows.

    Raises:
        SkipError: the method can't be trained on such rows.
        UserError: an objective returns something of a wrong type or shape.
    """
    import dlmexp

    settings = {f"training.{task}.max_iterations": ITERATIONS, "beta.values": [1.0]}
    try:
        run = dlmexp.run(
            _made_up_rows(task),
            method,
            task=task,
            results=folder,
            seeds=[0],
            M=8,
            verbose=False,
            device="cpu",
            **settings,
        )
    except UserError as error:
        # Errors of the plugin's objective begin with its name. Others say why the method can't be
        # trained on these rows.
        if str(error).startswith("objective '"):
            raise
        raise SkipError(str(error)) from None
    return run.cells


def check_experiment(name: str) -> str:
    """Plan an experiment, and return how many cells it has."""
    from dlmexp.experiment.plan.compose import compose
    from dlmexp.experiment.running.sweep import prepare_sweep

    cfg = compose([f"experiment={name}"])
    try:
        sweep = prepare_sweep(cfg)
    except UserError as error:
        if "nothing can be run" in str(error):  # files of its datasets are missing
            raise SkipError(str(error)) from None
        raise
    return f"{len(sweep.cells)} cells"


def check_figure(name: str, results: Path) -> str:
    """Draw a figure from a results folder, and return how many panels it has."""
    import dlmexp

    _skip_without_records(results)
    try:
        figure = dlmexp.plot(name, results)
    except UserError as error:
        raise SkipError(f"{error} (--results DIR names a folder with its records)") from None
    return f"drawn, {len(figure.axes)} panels, from {results}"


def check_claim(name: str, results: Path) -> str:
    """Judge a claim on a results folder, and return its verdicts."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims.claim import CLAIMS
    from dlmexp.presentation.claims.judge import judge

    _skip_without_records(results)
    judged = judge(ResultsFolder(results), [CLAIMS[name].number])
    frame = judged.as_frame()
    verdicts = ", ".join(dict.fromkeys(frame["verdict"]))
    return f"{verdicts} on {results}"


def _skip_without_records(results: Path) -> None:
    if not results.is_dir():
        raise SkipError(f"there is no folder '{results}': name one with records by --results DIR")


CHECK_OF_KIND: dict[str, Callable[[str], Iterator[Check]]] = {
    "kernel": check_kernel,
    "likelihood": check_likelihood,
    "estimator": check_estimator,
}
"""The checks of registered objects that need nothing else, by their kind. Objectives are checked
through the methods that use them; figures and claims need a results folder."""
