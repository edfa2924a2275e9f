"""A trained model as a GPyTorch `ApproximateGP` with its likelihood: in memory, or as a state dict
and the Python file that loads it.

The Python file is the only definition there is: the model in memory is made by executing it, so
that what is exported is what is tested."""

import importlib
import io
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from dlmexp.common.atomic import check_output, write_atomically
from dlmexp.common.errors import UserError
from dlmexp.core.gp.kernels import kernel_named
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.likelihoods.regression import NU
from dlmexp.experiment.models.file import TrainedCell, encoded, lower_triangular
from dlmexp.experiment.models.predictor import checked_kernel

MARK = '"""A sparse GP that was trained by dlmexp'
SOURCE = '''\
{mark}: {about}.

    model, likelihood, saved = load("{file}")
    X = encode(frame, saved)                          # of a raw table; float64 [N, {D}] as in saved["features"]
    x = ((X - saved["X_mean"]) / saved["X_std"]).nan_to_num()
    y = likelihood(model(x))                          # of targets (Y - saved["y_mean"]) / saved["y_std"]
"""

{imports}
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
{classes}

class Strategy(VariationalStrategy):
    def forward(self, x, *args, **kwargs):  # GPyTorch adds the jitter of Kuu to predicted variances: taken away again
        q = super().forward(x, *args, **kwargs)
        return MultivariateNormal(q.mean, q.lazy_covariance_matrix.add_jitter(-self.jitter_val))


class Model(gpytorch.models.ApproximateGP):
    def __init__(self):
        q = CholeskyVariationalDistribution({M})
        super().__init__(Strategy(self, torch.zeros({M}, {D}), q, jitter_val={jitter!r}))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel({kernel})

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def encode(frame, saved):
    """The features of a pandas DataFrame with the columns of training; missing values are NaN."""
    import pandas as pd

    parts = []
    for column in saved["columns"]:
        values, kind = frame[column["name"]], column.get("kind", "number")
        if kind == "number":
            parts.append(pd.to_numeric(values.replace({{True: 1.0, False: 0.0}})).to_numpy("float64"))
        elif kind == "date":
            days = (pd.to_datetime(values, format=column.get("format")) - pd.Timestamp(0)) / pd.Timedelta(days=1)
            parts.append(days.to_numpy("float64"))
        else:
            levels = column["levels"]
            texts = values.map(lambda v: v if isinstance(v, str) else f"{{v:.15g}}", na_action="ignore")
            texts = texts.fillna("(missing)") if "(missing)" in levels else texts
            if not texts.dropna().isin(levels).all():
                raise ValueError(f"column '{{column['name']}}' has a value that the model was not trained on")
            parts += [texts.eq(level).astype("float64").where(texts.notna()).to_numpy() for level in levels[1:]]
    return torch.stack([torch.from_numpy(part.copy()) for part in parts], 1)


def load(path):
    saved = torch.load(path, weights_only=True)
    model = Model().double().eval()
    likelihood = {likelihood}
    likelihood = likelihood.double().eval()
    model.load_state_dict(saved["model"])
    likelihood.load_state_dict(saved["likelihood"])
    return model, likelihood, saved
'''

POISSON_EXP = """

class PoissonExpLikelihood(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    def forward(self, function_samples, *args, **kwargs):  # y ~ Poisson(exp(f)); GPyTorch's own has a softplus
        return torch.distributions.Poisson(function_samples.exp())
"""

GPYTORCH_LIKELIHOODS = {
    # By default GPyTorch keeps the noise above 1e-4; ours may be below.
    "gaussian": "gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())",
    "probit": "gpytorch.likelihoods.BernoulliLikelihood()",
    "student_t": "gpytorch.likelihoods.StudentTLikelihood()",
    "poisson": "PoissonExpLikelihood()",
    "poisson_softplus": "gpytorch.likelihoods.PoissonLikelihood()",
}
KERNELS = {"rbf": ("RBFKernel", {}), "matern52": ("MaternKernel", {"nu": 2.5})}


class Exported(NamedTuple):
    """GPyTorch's modules in evaluation mode, what is saved, and the source of the classes."""

    model: Any
    likelihood: Any
    saved: dict[str, Any]
    source: str


def to_gpytorch(trained: TrainedCell, file: str = "model.pt") -> Exported:
    """The model and likelihood with all parameters set. `file` is the name that the source is to
    load."""
    import_gpytorch()
    source = _source(
        trained, file
    )  # all of it ours: names in it are checked, and text can't end a string
    module = types.ModuleType("dlmexp_exported")
    exec(compile(source, f"<exported {trained.cell.key}>", "exec"), module.__dict__)
    hyper = {
        name: torch.as_tensor(np.array(value), dtype=PARAMETERS)
        for name, value in trained.hyper.items()
    }
    model = module.Model().to(PARAMETERS)
    likelihood = eval(GPYTORCH_LIKELIHOODS[trained.cell.likelihood], module.__dict__).to(PARAMETERS)
    if "noise" in hyper:
        likelihood.noise = hyper["noise"].reshape(1)
    if trained.cell.likelihood == "student_t":
        likelihood.deg_free = torch.tensor([NU]).to(hyper["noise"])
    with torch.no_grad():
        model.mean_module.constant.copy_(hyper["mean"])
        model.covar_module.outputscale = hyper["outputscale"]
        kernel = model.covar_module.base_kernel
        if "lengthscale" in hyper:
            kernel.lengthscale = hyper["lengthscale"].reshape(1, -1)
        for name, parameter in kernel.named_parameters():
            if f"kernel.{name}" in hyper:
                parameter.copy_(hyper[f"kernel.{name}"])
        strategy = model.variational_strategy
        strategy.inducing_points.copy_(hyper["Z"])
        strategy.variational_params_initialized.fill_(1)
        q = strategy._variational_distribution
        q.variational_mean.copy_(torch.as_tensor(trained.m))
        q.chol_variational_covar.copy_(torch.as_tensor(lower_triangular(trained.L)))
    saved = {
        "model": model.state_dict(),
        "likelihood": likelihood.state_dict(),
        "X_mean": torch.as_tensor(trained.normalisation.mean),
        # A feature that was constant in training is 0 after normalisation, whatever its value.
        "X_std": torch.as_tensor(
            np.where(trained.normalisation.constant, np.inf, trained.normalisation.std)
        ),
        "y_mean": trained.y_mean,
        "y_std": trained.y_std,
        "features": list(trained.schema.features),
        "columns": [msgspec.to_builtins(column) for column in trained.schema.columns],
        "log": trained.schema.log,  # targets are logarithms
        "target": trained.schema.target,
        "labels": list(trained.schema.labels or ()),
        "key": trained.cell.key,
    }
    return Exported(model.eval(), likelihood.eval(), saved, source)


def export(trained: TrainedCell, path: Path) -> Path:
    """Write the state dict to `path` and the Python file beside it, whose path is returned; or, if
    it ends in `.npz`, one file for `dlmexp predict --model`, which holds the schema of tables
    too."""
    check_output(path, f"'{path}'", (".pt", ".npz"))
    if path.suffix == ".npz":
        write_atomically(path, encoded(trained))
        return path
    script = path.with_suffix(".py")
    if script.exists() and not script.read_text(errors="replace").startswith(MARK):
        raise UserError(
            f"'{script}' is there and not one of ours, and would be overwritten: choose another name"
        )
    exported = to_gpytorch(trained, path.name)
    buffer = io.BytesIO()
    torch.save(exported.saved, buffer)
    write_atomically(path, buffer.getvalue())
    write_atomically(script, exported.source.encode())
    return script


def import_gpytorch() -> None:
    with warnings.catch_warnings():  # torch deprecates what GPyTorch uses when it is imported
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("gpytorch")


def _source(trained: TrainedCell, file: str) -> str:
    cell, D = trained.cell, len(trained.schema.features)
    if cell.likelihood not in GPYTORCH_LIKELIHOODS:
        known = ", ".join(GPYTORCH_LIKELIHOODS)
        raise UserError(
            f"GPyTorch has no likelihood like '{cell.likelihood}': models with {known} can be exported"
        )
    if cell.likelihood == "poisson_softplus" and not hasattr(
        sys.modules["gpytorch"].likelihoods, "PoissonLikelihood"
    ):
        raise UserError(
            "this GPyTorch has no PoissonLikelihood: upgrade it to export a model with poisson_softplus"
        )
    module, kernel = _kernel(cell.kernel, D if cell.ard else None)
    hyper = {name: torch.as_tensor(np.array(value))[None] for name, value in trained.hyper.items()}
    # GPyTorch's jitter is absolute, ours is relative to the mean of Kuu's diagonal.
    jitter = float(trained.jitter * checked_kernel(trained).diagonal(hyper["Z"], hyper).mean())
    imports = "\n".join(f"import {name}" for name in sorted({"gpytorch", "torch", module}))
    about, file = (
        re.sub(r"[^\w .,=+-]", "?", text) for text in (cell.describe(), file)
    )  # no text ends the docstring
    return SOURCE.format(
        mark=MARK, about=about, file=file, D=D, M=cell.M, imports=imports, jitter=jitter, kernel=kernel,
        classes=POISSON_EXP if cell.likelihood == "poisson" else "", likelihood=GPYTORCH_LIKELIHOODS[cell.likelihood],
    )  # fmt: skip


def _kernel(name: str, ard: int | None) -> tuple[str, str]:
    """The module to import, and the expression that makes the kernel."""
    if name in KERNELS:
        cls, options = KERNELS[name]
        module, path = "gpytorch", f"gpytorch.kernels.{cls}"
        options = {**options, **({} if ard is None else {"ard_num_dims": ard})}
    elif "." in name:
        kernel: Any = kernel_named(name)
        module, path, options = name.rpartition(".")[0], name, kernel.options(ard)
    else:
        known = ", ".join(KERNELS)
        raise UserError(
            f"GPyTorch has no kernel like '{name}': models with {known} or its own kernels can be exported"
        )
    return module, f"{path}({', '.join(f'{key}={value}' for key, value in options.items())})"
