"""What a run writes while it trains: the record, the arrays and the model of each cell."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from dlmexp.common.provenance import Provenance, provenance_here, with_timestamp
from dlmexp.core.folds import LOO, in_normalised_units, penalised_factor, pooled_mean
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.finished import FinishedFit, curve_arrays
from dlmexp.core.training.metrics import trivial_metrics
from dlmexp.core.training.program import Posterior
from dlmexp.data.splits import Normalisation, Prepared
from dlmexp.experiment.models.file import encoded
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.models.relevance import column_lengthscales
from dlmexp.experiment.models.scores import prediction_scores
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.plan.plugin_code import plugin_versions
from dlmexp.experiment.records.record import WARNING, Record, Result
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import checkpoint_path
from dlmexp.experiment.running.process import Stop
from dlmexp.experiment.running.programs import Hyperparameters, trained_model
from dlmexp.experiment.running.sweep import Sweep, make_split_preparer

# Estimated errors of the NLL, in nats per row, above which a result has a warning or counts as
# failed.
WARN_ABOVE_NLL_ERROR = 1e-3
FAIL_ABOVE_NLL_ERROR = 0.1

Arrays = dict[str, np.ndarray]
# Metrics that must be finite, as fits are selected by them. Other scores may be infinite or NaN.
LOSSES = ("nll", "mse", "error", "mre")
# The scores of users' own tables (`prediction_scores`) that are recorded.
RECORDED_SCORES = ("rmse", "mae", "r2", "coverage_95", "auc", "base_rate", "deviance", "dispersion")


class Writer(AbstractContextManager):
    """Runs jobs that write files, in the order in which `do` receives them.

    A job runs immediately, or with `in_thread` in the thread of the writer while the caller goes
    on. After a job that fails, because of a full disk for instance, the thread runs no other, and
    the next call of `do` raises its error.

    The exit of the context waits for all jobs and raises the error of a failed one. If the context
    itself raises an exception, that one is kept, unless it is a `Stop`: a `Stop` says that
    everything is saved, which is not true then.
    """

    def __init__(self, in_thread: bool):
        self._pool = ThreadPoolExecutor(1, "writer") if in_thread else None
        self._last = Future[None]()  # of the last job
        self._last.set_result(None)

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if exception_type is None or issubclass(exception_type, Stop):
            self._last.result()  # raises the error of a failed job

    def do(self, job: Callable[[], object], wait: bool = False) -> None:
        """Run a job after all earlier ones; with `wait`, return when it has ended."""
        if self._pool is None:
            job()
            return
        if self._last.done():
            self._last.result()  # raises the error of a failed job
        self._last = self._pool.submit(_run_after, self._last, job)
        if wait:
            self._last.result()


def _run_after(earlier: "Future[None]", job: Callable[[], object]) -> None:
    earlier.result()  # raises its error, so that no job runs after a failed one
    job()


class SplitFacts(NamedTuple):
    """The facts about a split that its records and models contain."""

    features: Normalisation
    y_mean: float
    y_std: float
    trivial: dict[str, dict[str, float]]  # metrics of the trivial predictor by part of the data


@dataclass(eq=False)
class Recorder:
    """Writes a record for each cell.

    Attributes:
        sweep: The cells.
        store: The results folder.
        on_record: A function that is called with every record.
        device: The name of the device.
        retrained: Fits with a record that are trained again: fixed variants start from their
            hyperparameters, which a pack of records does not contain.
        alone: Whether no other process of the run shares the device.
        written: Whether a cell is done (True) or failed (False), by its key, for the cells that
            this process has recorded. The writer may not have written their files yet.
        bases: Hyperparameters that fixed variants start from, by the key of their fit. The writer
            may not have written them yet.
    """

    sweep: Sweep
    store: Store
    on_record: Callable[[Record], None]
    device: str
    retrained: frozenset[Cell] = frozenset()
    alone: bool = True

    def __post_init__(self) -> None:
        datasets = self.sweep.datasets.values()
        self.writer = Writer(in_thread=self.device != "cpu")
        self.prepare_cached = make_split_preparer(self.sweep)
        self.written: dict[str, bool] = {}
        self.bases: dict[str, Hyperparameters] = {}
        self._provenance = provenance_here(self.device)
        self._schemas = {data.name: data.schema for _, data in datasets}
        self._user_tables = {data.name for spec, data in datasets if spec.loader == "table"}
        self._split_facts: dict[tuple, SplitFacts] = {}

    def keys(self) -> tuple[set[str], set[str]]:
        """Return the keys of done and of failed cells.

        A packed cell that is trained again counts as done when this process or another one has
        written a new record of it.
        """
        done, failed = self.store.keys()
        for key, is_done in self.written.items():
            keys = done if is_done else failed
            keys.add(key)
        for cell in self.retrained:
            # The old record is in a pack, a new one has a file of its own.
            has_new_record = self.store.path(cell.dataset, cell.key).exists()
            if cell.key not in self.written and not has_new_record:
                done.discard(cell.key)
        return done, failed

    def prepare_split(self, cell: Cell) -> Prepared:
        """Return the data to train a cell on.

        The facts about them that its record will contain are kept, since large data take long to
        prepare again.
        """
        split = self.prepare_cached(cell)
        identity = _split_identity(cell)
        if identity not in self._split_facts:
            targets = {"validation": split.y_val, "test": split.y_test}
            self._split_facts[identity] = SplitFacts(
                features=split.features,
                y_mean=split.y_mean,
                y_std=split.y_std,
                trivial=trivial_metrics(cell.task, split.y_train, targets),
            )
        return split

    def base_hyperparameters(self, cell: Cell) -> Hyperparameters | None:
        """Return the hyperparameters of the base fit that a cell starts from.

        None if that fit has no sound record.
        """
        assert cell.base is not None
        return self.bases.get(cell.base) or self.store.base_hyperparameters(cell.dataset, cell.base)

    def write_fit(self, cell: Cell, fit: FinishedFit) -> None:
        """Write the record of a fit.

        The fit counts as failed if its training failed, if a loss is not finite, or if its NLL is
        not accurate.
        """
        reason = fit.stopped if fit.failed else _why_unsound(cell, fit)
        if reason:
            self.write_failure(cell, reason, fit.iterations)
            return
        if gives_hyperparameters(cell):
            self.bases[cell.key] = fit.hyperparameters
        result = self._result(cell, fit)
        if cell.key in self.sweep.folds_of:
            result = with_pooled_validation(result, self.fold_results(cell))
        self.write_record(cell, result, _arrays(cell, fit), fit.posterior)

    def _result(self, cell: Cell, fit: FinishedFit) -> Result:
        facts = self._split_facts[_split_identity(cell)]
        scores_of_table = self._scores_of_own_table(cell, fit.posterior)
        has_objective = len(fit.objective) > 0
        lengthscales = self._lengthscales_by_column(cell, fit)
        return Result(
            validation=fit.metrics.get("validation", {}),
            test=scores_of_table | fit.metrics.get("test", {}),
            trivial=facts.trivial,
            iterations=fit.iterations,
            # Without a stopping rule, a fit always ends at its limit: it has not converged either.
            converged=fit.stopped != "limit",
            stopped=_why_stopped(cell, fit),
            seconds=float(fit.seconds),
            alone=fit.alone and self.alone,
            acceptance=fit.acceptance,
            objective_value=float(fit.objective[-1]) if has_objective else None,
            jitter=float(fit.posterior.jitter[0]),
            y_mean=facts.y_mean,
            y_std=facts.y_std,
            hyperparameters=_mean_hyperparameters(fit) | lengthscales,
            note=_note(cell, fit),
            evidence_gap=fit.evidence_gap,
            best_start=_best_start(fit),
            restart_gain=_restart_gain(fit),
            profile=_profile_of_fold(cell, fit),
            recalibration_factor=self._recalibration_factor(cell, fit),
        )

    def _recalibration_factor(self, cell: Cell, fit: FinishedFit) -> float | None:
        """Return the factor that recalibrates a fit to all rows, by cross-validation.

        The factor minimises the NLL of rows that were left out, one by one or in folds, plus a
        penalty (`penalised_factor`). None without cross-validation.
        """
        if cell.cv == LOO and fit.profile is not None:
            return penalised_factor(fit.profile)
        return self.recalibration_factor_of_folds(cell)

    def fold_results(self, cell: Cell) -> list[Result]:
        """Return the results of the folds of a fit to all rows.

        Empty for other cells, or if one of the folds has no sound record.
        """
        results: list[Result] = []
        for key in self.sweep.folds_of.get(cell.key, ()):
            result = self.store.fold_result(cell.dataset, key)
            if result is None:
                return []
            results.append(result)
        return results

    def recalibration_factor_of_folds(self, cell: Cell) -> float | None:
        """Return the factor that recalibrates a fit to all rows, by its folds.

        Each fold has a profile: its NLL for each of a grid of factors. The factor minimises the sum
        of the profiles plus a penalty (`penalised_factor`). None if a profile is missing.
        """
        profiles = [result.profile for result in self.fold_results(cell)]
        if not profiles or not all(profiles):
            return None
        return penalised_factor(np.sum(profiles, axis=0))

    def _lengthscales_by_column(self, cell: Cell, fit: FinishedFit) -> dict[str, float]:
        """Return the lengthscale of each column of a user's table, by `lengthscale[COLUMN]`.

        Empty for other datasets.
        """
        if cell.dataset not in self._user_tables:
            return {}
        features = self._split_facts[_split_identity(cell)].features
        by_column = column_lengthscales(
            self._schemas[cell.dataset], features.constant, fit.hyperparameters
        )
        lengthscales: dict[str, float] = {}
        for name, value in by_column.items():
            lengthscales[f"lengthscale[{name}]"] = value
        return lengthscales

    def _scores_of_own_table(self, cell: Cell, posterior: Posterior) -> dict[str, float]:
        """Return test scores in the units of the target of a user's table.

        Empty for other datasets.
        """
        if cell.dataset not in self._user_tables:
            return {}
        split = self.prepare_cached(cell)
        if len(split.y_test) == 0:
            return {}
        model = trained_model(cell, self._schemas[cell.dataset], split, posterior)
        # The predictor takes features and returns targets in their own units: undo the
        # normalisation.
        features = split.X_test * split.features.std + split.features.mean
        targets = split.y_test * split.y_std + split.y_mean
        if model.schema.log:
            targets = np.exp(targets)
        predictor = Predictor([model])
        scores = prediction_scores(predictor.predict(features), targets, predictor)
        for name in scores.keys() - set(RECORDED_SCORES):
            del scores[name]
        return scores

    def write_failure(
        self, cell: Cell, reason: str, iterations: int = 0, traceback: str | None = None
    ) -> None:
        """Write the record of a cell that failed."""
        result = Result(reason=reason, iterations=iterations, traceback=traceback)
        self.write_record(cell, result, {})

    def write_record(
        self, cell: Cell, result: Result, arrays: Arrays, posterior: Posterior | None = None
    ) -> None:
        """Write the record of a cell with its arrays, and its model if models are kept.

        The writer may write the files later, but `keys` counts the cell from now on.
        """
        spec, _ = self.sweep.datasets[cell.dataset, cell.split]
        record = Record(
            key=cell.key,
            status="failed" if result.reason else "done",
            cell=cell,
            result=result,
            made=self._provenance_of(cell),
            dataset_spec=msgspec.to_builtins(spec),
        )

        def write_files() -> None:
            model = None
            keeps_model = self.sweep.cfg.keep != "none" and cell.fold is None
            if keeps_model and posterior is not None:
                facts = self._split_facts[_split_identity(cell)]
                model = encoded(trained_model(cell, self._schemas[cell.dataset], facts, posterior))
            self.store.write(record, arrays, model)

        self.writer.do(write_files)
        self.written[cell.key] = record.done
        self.on_record(record)

    def _provenance_of(self, cell: Cell) -> Provenance:
        provenance = msgspec.structs.replace(self._provenance, plugins=plugin_versions(cell))
        return with_timestamp(provenance)

    def discard_checkpoint(self, batch: Batch) -> None:
        """Delete the checkpoint of a batch, after all records so far are written."""
        path = checkpoint_path(self.store, batch)
        self.writer.do(partial(path.unlink, missing_ok=True))


def _why_stopped(cell: Cell, fit: FinishedFit) -> str:
    """Return why training stopped: the word of the core, or `iterations`, or `epochs`.

    For a fit without a stopping rule the limit is what the user requested, and the word for it is
    the unit in which it was set.
    """
    has_rule = cell.window is not None or cell.optimizer == "lbfgs"
    if fit.stopped != "limit" or has_rule:
        return fit.stopped
    return "epochs" if cell.epochs else "iterations"


def _mean_hyperparameters(fit: FinishedFit) -> dict[str, float]:
    """Return the mean of each hyperparameter over its entries, without inducing inputs."""
    means = {name: float(np.mean(values)) for name, values in fit.hyperparameters.items()}
    means.pop("Z", None)
    return means


def _profile_of_fold(cell: Cell, fit: FinishedFit) -> list[float]:
    """Return the NLL of a fold at each of a grid of recalibrating factors; empty for other fits."""
    if cell.fold is None or fit.profile is None:
        return []
    return fit.profile.tolist()


def _best_start(fit: FinishedFit) -> int | None:
    """Return the number of the start that ended lowest; None if there was a single start."""
    return int(np.argmin(fit.ends)) if len(fit.ends) > 1 else None


def _restart_gain(fit: FinishedFit) -> float | None:
    """Return how far the objective at the end of the best start is below that of the first start.

    None if there was a single start.
    """
    ends = fit.ends
    return float(ends[0] - ends.min()) if len(ends) > 1 else None


def with_pooled_validation(result: Result, folds: Sequence[Result]) -> Result:
    """Return the result of a fit to all rows with the pooled metrics of its folds as validation.

    Each fold has normalised the targets by its own `y_std`. The pooled metrics are for targets that
    are normalised as in the fit to all rows.
    """
    if not folds:
        return result
    y_stds = [fold.y_std or 1.0 for fold in folds]
    y_std = result.y_std or 1.0
    validation: dict[str, float] = {}
    for name in folds[0].validation:
        values = [fold.validation[name] for fold in folds]
        mean = pooled_mean(name, values, y_stds)  # in the units of the target
        validation[name] = in_normalised_units(name, mean, y_std)
    return msgspec.structs.replace(result, validation=validation)


def gives_hyperparameters(cell: Cell) -> bool:
    """Return whether fixed variants can take their hyperparameters from this fit."""
    if cell.variant != "joint" or cell.beta != 1.0 or cell.components > 1:
        return False
    return OBJECTIVES[cell.objective].gives_hyperparameters


def _split_identity(cell: Cell) -> tuple:
    """Return the values of a cell that tell splits apart."""
    return cell.dataset, cell.split, cell.task, cell.n, cell.cv, cell.repetition


def _arrays(cell: Cell, fit: FinishedFit) -> Arrays:
    """Return the arrays that are stored with the record of a fit."""
    arrays = dict(fit.reliability)
    if len(fit.objective):
        arrays["objective"] = fit.objective.astype(np.float32)
    if fit.acceptance is not None:
        # One rate for each block of 100 iterations, by which claim 16 is judged.
        arrays["acceptance"] = fit.block_acceptance.astype(np.float32)
    if cell.evaluate != "end":
        arrays |= curve_arrays(fit.curve)
        arrays["epochs"] = arrays["evaluated_at"] / cell.iterations_per_epoch
    if gives_hyperparameters(cell):
        arrays |= fit.hyperparameters
    return arrays


def _note(cell: Cell, fit: FinishedFit) -> str | None:
    """Return the note of the objective and a warning about the NLL; None if there is neither."""
    notes: list[str] = []
    objective_note = OBJECTIVES[cell.objective].note(cell.variant, cell.beta, cell.task)
    if objective_note:
        notes.append(objective_note)
    error = fit.nll_error
    if error is not None and error > WARN_ABOVE_NLL_ERROR:
        notes.append(WARNING + _nll_warning(cell, error))
    return "; ".join(notes) or None


def _nll_warning(cell: Cell, error: float) -> str:
    """Return a message about the error of the NLL, and what the author of the likelihood can do."""
    return (
        f"the NLL may be wrong by {error:.2g} per row: the quadrature of the likelihood "
        f"'{cell.likelihood}' has too few nodes; define its `kinks(y)`, or a closed-form `log_loss`"
    )


def _why_unsound(cell: Cell, fit: FinishedFit) -> str:
    """Return why a result counts as failed; '' if it is sound."""
    error = fit.nll_error
    # NaN counts as a failure too, so this is not `error > FAIL_ABOVE_NLL_ERROR`.
    if error is not None and not error <= FAIL_ABOVE_NLL_ERROR:
        return _nll_warning(cell, error)
    return _what_is_not_finite(fit)


def _what_is_not_finite(fit: FinishedFit) -> str:
    """Return a message that names a NaN or infinite number; '' if all are finite."""
    if len(fit.objective) and not np.isfinite(fit.objective[-1]):
        return "the objective is not finite"
    for part, metrics in fit.metrics.items():
        for name, value in metrics.items():
            if name in LOSSES and not np.isfinite(value):
                return f"the {part} {name} is not finite"
    return ""
