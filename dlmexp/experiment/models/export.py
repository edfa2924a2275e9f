"""A trained model as a GPyTorch `ApproximateGP` with its likelihood.

`to_gpytorch` makes the model in memory; `export` writes a state dict and a Python file that loads
it. The classes are defined only in the text of this Python file (`SOURCE`). The model in memory is
made by executing the text, so that tests of the model also test the file.
"""

import importlib
import io
import re
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from dlmexp.common.atomic import check_output, write_atomically
from dlmexp.common.errors import UserError
from dlmexp.common.reading.files import MIB, read_content
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.gp.mixed_kernels import Mixed
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.likelihoods.regression import NU
from dlmexp.experiment.models.file import TrainedCell, encoded, lower_triangular
from dlmexp.experiment.models.predictor import checked_kernel

MARK = '"""A sparse GP that was trained by dlmexp'  # begins every file that `export` writes
# The text of the exported Python file. `{mark}` contains the quotes that open the docstring.
# In `encode`, a category has one of two encodings (`Schema`):
# - indicators: a feature for each level and one for missing values. They come after the features of
#   all other columns, where the kernel expects them.
# - dummies: a feature for each level but the first, at the place of the column.
SOURCE = '''\
{mark}: {about}.

    model, likelihood, saved = load("{file}")
    X = encode(frame, saved)  # of a raw table; float64 [N, {D}] as in saved["features"]
    x = ((X - saved["X_mean"]) / saved["X_std"]).nan_to_num()
    y = likelihood(model(x))  # of targets (Y - saved["y_mean"]) / saved["y_std"]
{note}"""

{imports}
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
{classes}

class Strategy(VariationalStrategy):
    # GPyTorch adds the jitter of Kuu to predicted variances: taken away again
    def forward(self, x, *args, **kwargs):
        q = super().forward(x, *args, **kwargs)
        return MultivariateNormal(q.mean, q.lazy_covariance_matrix.add_jitter(-self.jitter_val))


class Model(gpytorch.models.ApproximateGP):
    def __init__(self):
        q = CholeskyVariationalDistribution({M}{batch})
        super().__init__(Strategy(self, torch.zeros({M}, {D}), q, jitter_val={jitter!r}))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = {kernel}

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def encode(frame, saved):
    """The features of a pandas DataFrame with the columns of training; missing values are NaN."""
    import pandas as pd

    parts, indicators = [], []
    for column in saved["columns"]:
        values, kind = frame[column["name"]], column.get("kind", "number")
        if kind == "number":
            numbers = pd.to_numeric(values.replace({{True: 1.0, False: 0.0}}))
            parts.append(numbers.to_numpy("float64"))
        elif kind == "date":
            dates = pd.to_datetime(values, format=column.get("format"))
            days = (dates - pd.Timestamp(0)) / pd.Timedelta(days=1)
            parts.append(days.to_numpy("float64"))
        else:
            levels = column["levels"]
            texts = values.map(
                lambda v: v if isinstance(v, str) else f"{{v:.15g}}", na_action="ignore"
            )
            texts = texts.fillna("(missing)") if "(missing)" in levels else texts
            if not texts.dropna().isin(levels).all():
                name = column["name"]
                raise ValueError(f"column '{{name}}' has a value that the model was not trained on")
            if column.get("encoding") == "indicators":
                indicators.extend(texts.eq(level).to_numpy("float64") for level in levels)
                indicators.append(texts.isna().to_numpy("float64"))
                continue
            for level in levels[1:]:
                is_level = texts.eq(level).astype("float64")
                parts.append(is_level.where(texts.notna()).to_numpy())
    return torch.stack([torch.from_numpy(part.copy()) for part in parts + indicators], 1)


def load(path):
    saved = torch.load(path, weights_only=True)
    model = Model().double().eval()
    likelihood = {likelihood}
    likelihood = likelihood.double().eval()
    model.load_state_dict(saved["model"])
    likelihood.load_state_dict(saved["likelihood"])
    return model, likelihood, saved
'''

MIXTURE_NOTE = """\
    # q is a mixture of {K} Gaussians: y has a line for each of them, all of equal weight
"""
POISSON_EXP = """

class PoissonExpLikelihood(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    # y ~ Poisson(exp(f)); GPyTorch's own has a softplus
    def forward(self, function_samples, *args, **kwargs):
        return torch.distributions.Poisson(function_samples.exp())
"""

GPYTORCH_LIKELIHOODS = {
    # By default GPyTorch keeps the noise above 1e-4; ours may be below.
    "gaussian": (
        "gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())"
    ),
    "probit": "gpytorch.likelihoods.BernoulliLikelihood()",
    "student_t": "gpytorch.likelihoods.StudentTLikelihood()",
    "poisson": "PoissonExpLikelihood()",
    "poisson_softplus": "gpytorch.likelihoods.PoissonLikelihood()",
}
KERNELS = {
    "rbf": ("RBFKernel", {}),
    "matern32": ("MaternKernel", {"nu": 1.5}),
    "matern52": ("MaternKernel", {"nu": 2.5}),
}
"""The class in `gpytorch.kernels` and its options, by the name of our kernel."""


@dataclass(frozen=True)
class Exported:
    """A model as modules of GPyTorch in evaluation mode.

    Attributes:
        model: The model.
        likelihood: The likelihood.
        saved: The state dicts of model and likelihood, and what is needed to encode tables.
        source: The text of the Python file with the classes.
    """

    model: Any
    likelihood: Any
    saved: dict[str, Any]
    source: str


def to_gpytorch(trained: TrainedCell, file: str = "model.pt") -> Exported:
    """Return the model and the likelihood with all parameters set.

    If q is a mixture, the model and its predictions have a batch dimension: the components.

    Args:
        trained: The model.
        file: The name of the state dict's file, which the Python file mentions.
    """
    import_gpytorch()
    source = _source(trained, file)
    module = types.ModuleType("dlmexp_exported")
    # The model may come from a stranger, but executing its source is safe: names of kernels and
    # likelihoods are checked, and texts can't end the string that they are in (`_inside_string`).
    exec(compile(source, f"<exported {trained.cell.key}>", "exec"), module.__dict__)
    model = module.Model().to(PARAMETER_DTYPE)
    likelihood_source = GPYTORCH_LIKELIHOODS[trained.cell.likelihood]
    likelihood = eval(likelihood_source, module.__dict__).to(PARAMETER_DTYPE)
    hyper = {}
    for name, value in trained.hyper.items():
        hyper[name] = torch.as_tensor(np.array(value), dtype=PARAMETER_DTYPE)
    if "noise" in hyper:
        likelihood.noise = hyper["noise"].reshape(1)
    if trained.cell.likelihood == "student_t":
        likelihood.deg_free = torch.tensor([NU]).to(hyper["noise"])
    with torch.no_grad():
        _set_prior(model, trained, hyper)
        _set_posterior(model.variational_strategy, trained, hyper["Z"])
    saved = _saved(trained, model, likelihood)
    return Exported(model.eval(), likelihood.eval(), saved, source)


def _set_prior(model: Any, trained: TrainedCell, hyper: Mapping[str, Tensor]) -> None:
    """Set the parameters of mean and kernel.

    The kernel is: scale * (kernel of numbers * kernels of categories) + linear kernel. Without
    categories or without a linear term, these parts and the sum or product around them are missing.
    """
    model.mean_module.constant.copy_(hyper["mean"])
    scaled = model.covar_module
    if "linear_variance" in hyper:
        scaled, linear = scaled.kernels
        linear.variance = _variance_by_feature(trained, hyper["linear_variance"])
    scaled.outputscale = hyper["outputscale"]
    kernel = scaled.base_kernel
    if "category_lengthscale" in hyper:
        factors = kernel.kernels
        _set_category_lengthscales(factors, hyper["category_lengthscale"])
        # The first factor is the kernel of numbers. In a table without numbers it is the kernel of
        # a category; then `hyper` has none of the parameters below, and nothing is set twice.
        kernel = factors[0]
    if "lengthscale" in hyper:
        kernel.lengthscale = hyper["lengthscale"].reshape(1, -1)
    # The parameters of a kernel of GPyTorch (`kernel=gpytorch.kernels.NAME`)
    for name, parameter in kernel.named_parameters():
        if f"kernel.{name}" in hyper:
            parameter.copy_(hyper[f"kernel.{name}"])


def _set_category_lengthscales(factors: Any, lengthscales: Tensor) -> None:
    """Set the lengthscales of categories.

    Args:
        factors: The factors of a product kernel: the kernel of numbers, if there are numbers, then
            a kernel for each category.
        lengthscales: The lengthscale of each category.
    """
    # Count from the end, since there is a kernel of numbers only if there are numbers.
    category_factors = list(factors)[-len(lengthscales) :]
    for factor, lengthscale in zip(category_factors, lengthscales, strict=True):
        factor.lengthscale = lengthscale


def _variance_by_feature(trained: TrainedCell, variance: Tensor) -> Tensor:
    """Return the variance of the weight of every feature, for the linear kernel.

    Args:
        trained: The model.
        variance: A variance for each number, then for each category. All features of a category,
            the indicators of its levels, have the variance of the category.
    """
    indicator_counts = trained.schema.categories
    n_numbers = len(variance) - len(indicator_counts)
    repeats = torch.tensor([1] * n_numbers + list(indicator_counts))
    return variance.repeat_interleave(repeats)


def _set_posterior(strategy: Any, trained: TrainedCell, Z: Tensor) -> None:
    """Set inducing inputs and q of a variational strategy."""
    strategy.inducing_points.copy_(Z)
    # Otherwise GPyTorch would overwrite q by the prior when the model is first called.
    strategy.variational_params_initialized.fill_(1)
    q = strategy._variational_distribution
    q.variational_mean.copy_(torch.as_tensor(trained.m))
    q.chol_variational_covar.copy_(torch.as_tensor(lower_triangular(trained.L)))


def _saved(trained: TrainedCell, model: Any, likelihood: Any) -> dict[str, Any]:
    """Return the content of the state dict's file."""
    normalisation = trained.normalisation
    # A feature that was constant in training is 0 after normalisation, whatever its value: division
    # by infinity has this effect.
    X_std = np.where(normalisation.constant, np.inf, normalisation.std)
    return {
        "model": model.state_dict(),
        "likelihood": likelihood.state_dict(),
        "X_mean": torch.as_tensor(normalisation.mean),
        "X_std": torch.as_tensor(X_std),
        "y_mean": trained.y_mean,
        "y_std": trained.y_std,
        "features": list(trained.schema.features),
        "columns": list(map(msgspec.to_builtins, trained.schema.columns)),
        "log": trained.schema.log,  # targets are logarithms
        "target": trained.schema.target,
        "labels": list(trained.schema.labels or ()),
        "key": trained.cell.key,
    }


def export(trained: TrainedCell, path: Path) -> Path:
    """Write a model to a file.

    A `.npz` file is all that `dlmexp predict --model` needs: it also contains the schema of tables.
    A `.pt` file contains the state dict; the Python file that loads it gets the same name with the
    suffix `.py`.

    Returns:
        The path of the `.npz` file or of the Python file.

    Raises:
        UserError: the path has another suffix, or the Python file would overwrite a file that
            `export` has not written, or GPyTorch lacks the likelihood or the kernel.
    """
    check_output(path, f"'{path}'", (".pt", ".npz"))
    checked_kernel(trained)
    if path.suffix == ".npz":
        write_atomically(path, encoded(trained))
        return path
    script = path.with_suffix(".py")
    if script.exists() and not _is_exported(script):
        problem = f"'{script}' would be overwritten, and dlmexp has not written it"
        raise UserError(f"{problem}: choose another name")
    exported = to_gpytorch(trained, path.name)
    buffer = io.BytesIO()
    torch.save(exported.saved, buffer)
    write_atomically(path, buffer.getvalue())
    write_atomically(script, exported.source.encode())
    return script


def _is_exported(script: Path) -> bool:
    """Return whether a Python file was written by `export`."""
    text = read_content(script, MIB).decode(errors="replace")
    return text.startswith(MARK)


def import_gpytorch() -> types.ModuleType:
    """Import and return GPyTorch, without warnings that it uses deprecated functions of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("gpytorch")


def _source(trained: TrainedCell, file: str) -> str:
    """Return the Python file that defines and loads a model.

    Raises:
        UserError: GPyTorch has no such likelihood or kernel.
    """
    cell = trained.cell
    n_features = len(trained.schema.features)
    _check_likelihood(cell.likelihood)
    kernel = _kernel(cell.kernel, n_features, cell.ard)
    hyper = {}
    for name, value in trained.hyper.items():
        # Our kernels take batches of models: add their leading dimension.
        hyper[name] = torch.as_tensor(np.array(value))[None]
    # GPyTorch's jitter is absolute, ours is relative to the mean of Kuu's diagonal.
    Kuu_diagonal = checked_kernel(trained).diagonal(hyper["Z"], hyper)
    jitter = float(trained.jitter * Kuu_diagonal.mean())
    modules = sorted({"gpytorch", "torch", kernel.module})
    note = MIXTURE_NOTE.format(K=cell.components) if trained.is_mixture else ""
    batch = f", batch_shape=torch.Size([{cell.components}])" if trained.is_mixture else ""
    return SOURCE.format(
        mark=MARK,
        about=_inside_string(cell.describe()),
        file=_inside_string(file),
        D=n_features,
        M=cell.M,
        note=note,
        batch=batch,
        imports="\n".join(f"import {module}" for module in modules),
        jitter=jitter,
        kernel=kernel.expression,
        classes=POISSON_EXP if cell.likelihood == "poisson" else "",
        likelihood=GPYTORCH_LIKELIHOODS[cell.likelihood],
    )


def _inside_string(text: str) -> str:
    """Return a text with question marks in place of characters that could end a string literal."""
    return re.sub(r"[^\w .,=+-]", "?", text)


def _check_likelihood(name: str) -> None:
    """Raise UserError if GPyTorch has no such likelihood."""
    if name not in GPYTORCH_LIKELIHOODS:
        known = ", ".join(GPYTORCH_LIKELIHOODS)
        problem = f"GPyTorch has no likelihood like '{name}'"
        raise UserError(f"{problem}: models with {known} can be exported")
    has_poisson = hasattr(import_gpytorch().likelihoods, "PoissonLikelihood")
    if name == "poisson_softplus" and not has_poisson:
        problem = "this GPyTorch has no PoissonLikelihood"
        raise UserError(f"{problem}: upgrade it to export a model with poisson_softplus")


@dataclass(frozen=True)
class _KernelSource:
    """The module that an exported file imports, and the expression in it that makes the kernel."""

    module: str
    expression: str


def _kernel(name: str, n_features: int, ard: bool) -> _KernelSource:
    """Return the source of a kernel, with its scale, kernels of categories and linear term.

    Args:
        name: The name of our kernel, or the import path of a kernel of GPyTorch.
        n_features: The number of features, indicators of categories included.
        ard: Whether the kernel has a lengthscale for each number.

    Raises:
        UserError: GPyTorch has no such kernel.
    """
    kernel = kernel_named(name)
    if not isinstance(kernel, Mixed):
        source = _base_kernel(name, n_features if ard else None, active={})
        expression = f"gpytorch.kernels.ScaleKernel({source.expression})"
        return _KernelSource(source.module, expression)
    n_numbers = n_features - kernel.indicator_count
    module = "gpytorch"
    factors: list[str] = []
    if n_numbers:
        # Without categories all features are numbers, and the kernel needs no selection of them.
        active = {"active_dims": list(range(n_numbers))} if kernel.sizes else {}
        source = _base_kernel(kernel.base.name, n_numbers if ard else None, active)
        module = source.module
        factors.append(source.expression)
    factors += _category_factors(kernel.sizes, first=n_numbers)
    base = factors[0]
    if kernel.sizes:
        base = f"gpytorch.kernels.ProductKernel({', '.join(factors)})"
    expression = f"gpytorch.kernels.ScaleKernel({base})"
    if kernel.linear:
        linear = _call("gpytorch.kernels.LinearKernel", {"ard_num_dims": n_features})
        expression = f"gpytorch.kernels.AdditiveKernel({expression}, {linear})"
    return _KernelSource(module, expression)


def _category_factors(sizes: Sequence[int], first: int) -> list[str]:
    """Return the source of a kernel for each category.

    Args:
        sizes: The number of indicators of each category.
        first: The position of the first indicator among the features.
    """
    factors = []
    for size in sizes:
        dims = list(range(first, first + size))
        factors.append(_call("gpytorch.kernels.RBFKernel", {"active_dims": dims}))
        first += size
    return factors


def _base_kernel(name: str, n_lengthscales: int | None, active: Mapping[str, Any]) -> _KernelSource:
    """Return the source of a kernel without its scale.

    Args:
        name: The name of our kernel, or the import path of a kernel of GPyTorch.
        n_lengthscales: The number of lengthscales with ARD; None without ARD.
        active: The option `active_dims` with the features of the kernel; empty: all features.

    Raises:
        UserError: GPyTorch has no such kernel.
    """
    if name in KERNELS:
        class_name, options = KERNELS[name]
        if n_lengthscales is not None:
            options = {**options, "ard_num_dims": n_lengthscales}
        expression = _call(f"gpytorch.kernels.{class_name}", {**options, **active})
        return _KernelSource("gpytorch", expression)
    if "." in name:
        kernel: Any = kernel_named(name)
        expression = _call(name, {**kernel.options(n_lengthscales), **active})
        return _KernelSource(name.rpartition(".")[0], expression)
    known = ", ".join(KERNELS)
    problem = f"GPyTorch has no kernel like '{name}'"
    raise UserError(f"{problem}: models with {known} or its own kernels can be exported")


def _call(function: str, options: Mapping[str, Any]) -> str:
    """Return the source of a call with these options as keyword arguments."""
    arguments = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{function}({arguments})"
