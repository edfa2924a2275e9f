"""Checks of a plugin for its author: `dlmexp test MODULE`.

They go through everything that the module registers and through the files of its folder `conf`, on
made-up rows. Each check is one line: what was tried, and what came of it.
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

ROWS = 60
FEATURES = 3
CELLS = 2  # of a batch
ITERATIONS = 20
DTYPES = (torch.float64, torch.float32)
DRAWS = 200  # evaluations of an estimator whose mean is compared with the log loss
TASKS = ("regression", "binary", "count")
TOTAL_PROBABILITY = 1e-3  # by which the probabilities of a likelihood may miss 1
MOST_COUNTS = 400  # counts whose probabilities are added up
USUAL_PREDICTIONS = {"regression": ("interval", "std"), "count": ("interval",)}
PUBLISHED = Path("results/paper")


class SkipError(Exception):
    """A check can't be made here; the text says why."""


@dataclass(frozen=True)
class Check:
    """What came of one check.

    Attributes:
        about: What was checked, such as "kernel rational: matrix".
        outcome: "ok", "failed" or "skipped".
        words: What was seen, or what is wrong.
    """

    about: str
    outcome: str
    words: str

    def __str__(self) -> str:
        return f"{self.outcome:8} {self.about}: {self.words}"


def check_plugin(name: str, results: Path | None = None) -> Iterator[Check]:
    """Check a plugin that has been imported.

    Args:
        name: The module.
        results: The folder whose records figures and claims are tried on; by default results of
            the paper, where they are.

    Yields:
        The checks, one after the other, as they are made.
    """
    module = import_module(name)
    registered = registered_by(name)
    files = _yaml_files(module)
    yield _made(f"module {name}", lambda: _listed(registered, files))
    for kind, check in KINDS.items():
        for item in registered.get(kind, []):
            yield from check(item)
    for path in files.get("dataset", []):
        yield _made(f"dataset {path.stem}", lambda path=path: check_dataset(path.stem))
    for path in files.get("method", []):
        yield from check_method(path.stem)
    for path in files.get("experiment", []):
        yield _made(f"experiment {path.stem}", lambda path=path: check_experiment(path.stem))
    folder = results or PUBLISHED
    for item in registered.get("figure", []):
        yield _made(f"figure {item}", lambda item=item: check_figure(item, folder))
    for item in registered.get("claim", []):
        yield _made(f"claim {item}", lambda item=item: check_claim(item, folder))


def _made(about: str, check: Callable[[], str]) -> Check:
    """Make a check; whatever it raises becomes its outcome."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Check(about, "ok", check())
    except SkipError as why:
        return Check(about, "skipped", str(why))
    except (UserError, AssertionError) as error:
        return Check(about, "failed", str(error))
    except Exception as error:  # whatever is wrong in a plugin
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        return Check(about, "failed", f"{type(error).__name__}: {error} ({where})")


def _yaml_files(module: ModuleType) -> dict[str, list[Path]]:
    """Return the YAML files of a module's folder `conf` by the folder in it that they lie in."""
    if module.__file__ is None:
        return {}
    files: dict[str, list[Path]] = {}
    for path in sorted((Path(module.__file__).parent / "conf").glob("*/*.yaml")):
        files.setdefault(path.parent.name, []).append(path)
    return files


def _listed(registered: dict[str, list[str]], files: dict[str, list[Path]]) -> str:
    """Return what is registered, and the files of `conf`, in one line.

    Raises:
        UserError: There is nothing.
    """
    parts: list[str] = []
    for kind, items in registered.items():
        parts.append(f"{kind} {', '.join(map(str, items))}")
    for folder, paths in files.items():
        names = [path.stem for path in paths]
        parts.append(f"conf/{folder}: {', '.join(names)}")
    if not parts:
        raise UserError(
            "registers nothing and has no folder conf; import the modules that register something"
        )
    return "; ".join(parts)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise UserError(problem)


def _check_shape(value: Any, expected: tuple[int, ...], name: str) -> None:
    kind = type(value).__name__
    _require(isinstance(value, Tensor), f"{name} is a {kind}, not a tensor")
    shape = list(value.shape)
    _require(value.shape == expected, f"{name} has the shape {shape}, not {expected}")


def _check_finite(value: Tensor, name: str) -> None:
    is_finite = torch.isfinite(value)
    wrong = int((~is_finite).sum())
    _require(wrong == 0, f"{name} has {wrong} values that are not finite, of {value.numel()}")


def _gradients(value: Tensor, leaves: dict[str, Tensor]) -> None:
    """Check that every leaf has a finite gradient of `value`'s sum.

    Raises:
        UserError: One has none: the value does not depend on it, or is detached.
    """
    _require(value.requires_grad, "its value has no gradient: is something detached?")
    gradients = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        _require(gradient is not None, f"its value does not depend on {name}")
        assert gradient is not None
        _check_finite(gradient, f"the gradient in {name}")


def _random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_kernel(name: str) -> Iterator[Check]:
    """Check matrices and gradients of a kernel."""
    yield _made(f"kernel {name}: matrices", lambda: _kernel_matrices(name))
    yield _made(f"kernel {name}: gradients", lambda: _kernel_gradients(name))


def _kernel_inputs(name: str, dtype: torch.dtype) -> tuple[Any, Tensor, Tensor, dict[str, Tensor]]:
    """Return a kernel, X [CELLS, ROWS, FEATURES], Z, and initial hyperparameters."""
    from dlmexp.core.gp.kernels import KERNELS

    kernel = KERNELS[name]
    X = torch.randn(CELLS, ROWS, FEATURES, generator=_random(), dtype=torch.float64).to(dtype)
    Z = X[:, : ROWS // 4] + 0.1
    parameters = kernel.parameters(FEATURES, ard=True)
    hyper = {parameter: value.start(X, CELLS) for parameter, value in parameters.items()}
    return kernel, X, Z, hyper


def _kernel_matrices(name: str) -> str:
    for dtype in DTYPES:
        kernel, X, Z, hyper = _kernel_inputs(name, dtype)
        K = kernel(X, X, hyper)
        _check_shape(K, (CELLS, ROWS, ROWS), "k(X, X)")
        _check_shape(kernel(Z, X, hyper), (CELLS, Z.shape[1], ROWS), "k(Z, X)")
        _require(K.dtype == dtype, f"k(X, X) is {K.dtype} for inputs of {dtype}")
        _check_finite(K, "k(X, X)")
        relative_tolerance = 1e-8 if dtype == torch.float64 else 1e-4
        tolerance = relative_tolerance * float(K.abs().max())
        asymmetry = float((K - K.mT).abs().max())
        _require(asymmetry <= tolerance, "k(X, X) is not symmetric")
        diagonal = kernel.diagonal(X, hyper)
        _check_shape(diagonal, (CELLS, ROWS), "diagonal(X)")
        difference = diagonal - K.diagonal(dim1=-2, dim2=-1)
        is_diagonal = float(difference.abs().max()) <= 10 * tolerance
        _require(is_diagonal, "diagonal(X) is not the diagonal of k(X, X)")
        lowest = float(torch.linalg.eigvalsh(K.double()).min())
        _require(
            lowest >= -ROWS * tolerance,
            f"k(X, X) has the negative eigenvalue {lowest:.2g}: it is no kernel",
        )
    return f"k(X, X) [{CELLS}, {ROWS}, {ROWS}], symmetric, no negative eigenvalue, both dtypes"


def _kernel_gradients(name: str) -> str:
    kernel, X, Z, hyper = _kernel_inputs(name, torch.float64)
    Z = Z.clone().requires_grad_()
    hyper = {parameter: value.clone().requires_grad_() for parameter, value in hyper.items()}
    leaves = {"Z": Z, **hyper}
    _gradients(kernel(Z, X, hyper), leaves)
    return f"finite in {', '.join(leaves)}"


def check_likelihood(name: str) -> Iterator[Check]:
    """Check probabilities, gradients and scores of a likelihood."""
    yield _made(f"likelihood {name}: probabilities", lambda: _probabilities(name))
    yield _made(f"likelihood {name}: log loss", lambda: _log_loss(name))
    yield _made(f"likelihood {name}: predictions", lambda: _predictions(name))


def _targets(task: str) -> Tensor:
    """Return made-up targets [CELLS, ROWS] of a task."""
    normal = torch.randn(CELLS, ROWS, generator=_random(1), dtype=torch.float64)
    if task == "regression":
        return normal
    if task == "binary":
        return (normal > 0).double()
    return torch.poisson(normal.exp(), generator=_random(2))


def _likelihood(name: str) -> tuple[Any, dict[str, Tensor]]:
    """Return a likelihood of CELLS cells, and its parameters."""
    from dlmexp.core.likelihoods import LIKELIHOODS

    kind = LIKELIHOODS[name]
    like = torch.zeros(CELLS, dtype=torch.float64)
    hyper = {}
    for parameter, value in kind.parameters.items():
        hyper[parameter] = value.start(like, CELLS).requires_grad_()
    return kind.from_hyper(hyper), hyper


def _probabilities(name: str) -> str:
    likelihood, _ = _likelihood(name)
    f = torch.linspace(-1.5, 1.5, CELLS * ROWS, dtype=torch.float64)
    f = f.reshape(CELLS, ROWS)
    y, spacing = _all_targets(likelihood.task, f)
    log_p = likelihood.over_samples().log_prob(f.unsqueeze(-2), y)
    _check_shape(log_p, tuple(y.shape), "log_prob(f, y)")
    totals = (log_p.exp() * spacing).sum(-2)
    worst = float((totals - 1).abs().max())
    sign = "+" if totals.max() > 1 else "-"
    _require(
        worst <= TOTAL_PROBABILITY,
        f"the probabilities of all y add up to 1 {sign} {worst:.2g}",
    )
    return f"those of all y add up to 1, to {worst:.0e}"


def _all_targets(task: str, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return the targets [CELLS, L, ROWS] that have probability, and the distance [L, 1] of each.

    Labels and counts are 1 apart. Numbers go from close to y = f [CELLS, ROWS] to far away, by
    equal steps of asinh(y - f).
    """
    if task == "regression":
        # y - f = 1e-3 sinh(t), so dy = 1e-3 cosh(t) dt
        t = torch.linspace(-16.0, 16.0, 20_001, dtype=torch.float64)[:, None]
        y = f.unsqueeze(-2) + 1e-3 * t.sinh()
        dt = t[1] - t[0]
        return y, 1e-3 * t.cosh() * dt
    n_values = 2 if task == "binary" else MOST_COUNTS
    values = torch.arange(n_values, dtype=torch.float64)[:, None]
    y = values.expand(CELLS, n_values, ROWS)
    return y, torch.ones(n_values, 1, dtype=torch.float64)


def _marginals() -> tuple[Tensor, Tensor]:
    """Return means and variances [CELLS, ROWS] of f."""
    mu = torch.randn(CELLS, ROWS, generator=_random(3), dtype=torch.float64)
    v = torch.rand(CELLS, ROWS, generator=_random(4), dtype=torch.float64) + 0.1
    return mu, v


def _log_loss(name: str) -> str:
    for method in ("log_loss", "elbo_loss"):
        likelihood, hyper = _likelihood(name)
        mu, v = _marginals()
        leaves = {"mu": mu.requires_grad_(), "v": v.requires_grad_(), **hyper}
        y = _targets(likelihood.task)
        values = getattr(likelihood, method)(mu, v, y)
        _check_shape(values, (CELLS, ROWS), method)
        _check_finite(values, method)
        _gradients(values, leaves)
    errors = likelihood.log_loss_error(mu.detach(), v.detach(), y)
    error = float(errors.detach().max())
    _require(error < 0.1, f"log_loss is wrong by {error:.2g} of a row: give it kinks(y)")
    return f"log_loss and elbo_loss with gradients in {', '.join(leaves)}; right to {error:.0e}"


@torch.no_grad()
def _predictions(name: str) -> str:
    likelihood, _ = _likelihood(name)
    mu, v = _marginals()
    y = _targets(likelihood.task)
    predicted = []
    for metric, score in likelihood.metrics.items():
        values = score(likelihood, mu, v, y)
        _check_shape(values, (CELLS, ROWS), f"metric {metric}")
        _check_finite(values, f"metric {metric}")
        predicted.append(f"metric {metric}")
    mean = likelihood.mean(mu, v)
    _check_shape(mean, (CELLS, ROWS), "mean")
    _check_finite(mean, "mean")
    interval = likelihood.interval(mu, v)
    if interval is not None:
        lower, upper = interval
        has_order = bool((lower <= upper).all())
        _require(has_order, "interval: its lower end lies above its upper end")
        predicted.append("interval")
    if likelihood.std(mu, v) is not None:
        predicted.append("std")
    usual = USUAL_PREDICTIONS.get(likelihood.task, ())
    missing = [part for part in usual if part not in predicted]
    note = f"; no {' and no '.join(missing)}: `predict` gives less" if missing else ""
    return f"mean, {', '.join(predicted) or 'no metric of its own'}{note}"


def check_estimator(name: str) -> Iterator[Check]:
    """Check value and gradient of an estimator for a likelihood of each task."""
    for likelihood in ("gaussian", "probit", "poisson"):
        about = f"estimator {name}: {likelihood}"
        yield _made(about, lambda likelihood=likelihood: _estimates(name, likelihood))


def _estimates(name: str, likelihood_name: str) -> str:
    from dlmexp.core.estimators import ESTIMATORS
    from dlmexp.core.estimators.draws import Draws

    options = _default_options(name)
    estimator = ESTIMATORS[name](**options)
    likelihood, _ = _likelihood(likelihood_name)
    try:
        estimator.check(type(likelihood))
    except UserError as why:
        raise SkipError(str(why)) from None
    mu, v = _marginals()
    leaves = {"mu": mu.requires_grad_(), "v": v.requires_grad_()}
    y = _targets(likelihood.task)
    draws = Draws.fresh()
    loss, _ = estimator.loss_and_acceptance(likelihood, mu, v, y, draws)
    _check_shape(loss, (CELLS, ROWS), "the loss")
    _check_finite(loss, "the loss")
    _gradients(loss, leaves)
    with torch.no_grad():
        exact = likelihood.log_loss(mu, v, y).mean()
        estimates = [estimator(likelihood, mu, v, y, draws).mean() for _ in range(DRAWS)]
        difference = float(torch.stack(estimates).mean() - exact)
    settings = [f"{option}={value}" for option, value in options.items()]
    listed = ", ".join(settings) or "no options"
    return f"{listed}: finite, with gradients; its mean is {difference:+.1e} off the log loss"


def _default_options(name: str) -> dict[str, Any]:
    """Return the first value of each option in conf/estimator.

    Raises:
        UserError: There is no such file.
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
    """Load a dataset, if its files are here, and return what it has."""
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
    """Train a few steps of a method on made-up rows of each task."""
    for task in TASKS:
        yield _made(f"method {name}: {task}", lambda task=task: _tiny_run(name, task))


def _made_up_rows(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features [180, 2] and targets of a task."""
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
    with tempfile.TemporaryDirectory() as folder:
        cells = _cells_of_tiny_run(method, task, folder)
    failed = cells[cells["status"] == "failed"]
    if len(failed):
        raise UserError(str(failed["reason"].iloc[0]))
    done = cells[cells["status"] == "done"]
    seconds = done["seconds"].sum() / max(1, done["iterations"].sum())
    nll = done["test_nll"].mean()
    words = f"{len(done)} fits of {ITERATIONS} steps, {1e3 * seconds:.1f} ms a step"
    return words if math.isnan(nll) else f"{words}, test NLL {nll:.3f}"


def _cells_of_tiny_run(method: str, task: str, folder: str) -> pd.DataFrame:
    """Return the cells of a run on made-up rows.

    Raises:
        SkipError: the method can't be trained on such rows.
        UserError: an objective returns something that it should not.
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
    except UserError as why:
        if str(why).startswith("objective '"):
            raise
        raise SkipError(str(why)) from None
    return run.cells


def check_experiment(name: str) -> str:
    """Plan an experiment, and return how many cells it has."""
    from dlmexp.experiment.plan.compose import compose
    from dlmexp.experiment.running.sweep import prepare_sweep

    cfg = compose([f"experiment={name}"])
    try:
        sweep = prepare_sweep(cfg)
    except UserError as why:
        if "nothing can be run" in str(why):
            raise SkipError(str(why)) from None
        raise
    return f"{len(sweep.cells)} cells"


def check_figure(name: str, results: Path) -> str:
    """Draw a figure from a results folder."""
    import dlmexp

    _skip_without_records(results)
    try:
        figure = dlmexp.plot(name, results)
    except UserError as why:
        raise SkipError(f"{why} (--results DIR names a folder with its records)") from None
    return f"drawn, {len(figure.axes)} panels, from {results}"


def check_claim(name: str, results: Path) -> str:
    """Judge a claim on a results folder."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims.claim import CLAIMS
    from dlmexp.presentation.claims.judge import judge

    _skip_without_records(results)
    frame = judge(ResultsFolder(results), [CLAIMS[name].number]).as_frame()
    verdicts = ", ".join(dict.fromkeys(frame["verdict"]))
    return f"{verdicts} on {results}"


def _skip_without_records(results: Path) -> None:
    if not results.is_dir():
        raise SkipError(f"there is no folder '{results}': name one with records by --results DIR")


KINDS: dict[str, Callable[[str], Iterator[Check]]] = {
    "kernel": check_kernel,
    "likelihood": check_likelihood,
    "estimator": check_estimator,
}
"""Kinds whose objects are checked by themselves; objectives are by the methods that use them."""
