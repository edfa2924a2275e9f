"""Choose models of a results folder: by terms such as `dataset=cadata`, then by validation NLL.

Models are compared only on the same validation rows, which depend on the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.experiment.models.file import TrainedCell, decoded
from dlmexp.experiment.plan.cell import FIELDS, FIRST_OPTIONS, SELECTED_FIELDS, SHARED_IN_BATCH
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where, check_values, is_any_of, parse_terms
from dlmexp.experiment.records.store import MODEL

CELL_FIELDS = tuple(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options")
TERM_NAMES = ("key", "method", "protocol", *CELL_FIELDS)
"""The names in the terms by which users choose."""
# Models of one mixture may differ in what is selected for each seed. The options of an estimator
# are compared one by one (`FIRST_OPTIONS`), not as a whole.
DIFFERING_IN_MIXTURE = ("options", *SELECTED_FIELDS)
SHARED_IN_MIXTURE = [
    name for name in (*SHARED_IN_BATCH, *FIRST_OPTIONS) if name not in DIFFERING_IN_MIXTURE
]
"""The fields in which all models of one mixture agree."""
MAX_NAMED_KEYS = 8  # in an error message
HOW_TO_TRAIN = (
    "give the command of that run with results= a new folder (keep=all for models at every beta)"
)
"""Advice that ends messages about a missing model."""


@dataclass(frozen=True)
class ChosenModel:
    """A chosen model.

    Attributes:
        row: The row of the model in `ResultsFolder.candidates`.
        model: The model.
        description: The key of the model, what was trained how, and why the model was chosen.
    """

    row: Any
    model: TrainedCell
    description: str


def choose_models(
    results: ResultsFolder, where: Sequence[str], every_seed: bool = False, option: str = "--where"
) -> list[ChosenModel]:
    """Return the model with the best validation NLL among those that match all terms.

    Args:
        results: The results folder.
        where: Terms such as `dataset=cadata`.
        every_seed: Return the best model of each seed in place of a single model. All of them have
            the settings of the best model.
        option: The option with which the user typed the terms, for messages.

    Raises:
        UserError: no model matches, or those that match can't be compared.
    """
    terms = parse_terms(option, where, TERM_NAMES)
    candidates = _matching_models(results, terms, where, option)
    _check_single_dataset(candidates, results, option)
    best = _best(candidates, option)
    if every_seed:
        if "seed" in terms or "key" in terms:
            typed = f"{option} {' '.join(where)}"
            problem = "models of all seeds are requested, but seed= and key= choose one"
            raise UserError(f"{typed}: {problem}; leave seed= and key= out")
        best = _best_by_seed(candidates, best, option)
    return [_load_chosen(results, row) for row in best.itertuples()]


def _matching_models(
    results: ResultsFolder, terms: Where, where: Sequence[str], option: str
) -> pd.DataFrame:
    """Return the rows of `results.candidates` that match the terms and have a model.

    A cell that belongs to several groups of candidates has one row in the result.

    Raises:
        UserError: no row matches, or no matching row has a model.
    """
    rows = results.candidates
    is_done = rows["status"] == "done"
    has_model = rows["key"].isin(results.store.model_files()) & is_done
    if "model" not in rows or not has_model.any():
        raise UserError(f"there are no models in '{results.root}': {HOW_TO_TRAIN}")
    matching = _matching_rows(rows, terms, option).drop_duplicates("key")
    models = matching[has_model[matching.index]]
    if models.empty:
        records = counted(len(matching), "record")
        problem = (
            f"no model in '{results.root}' matches {' '.join(where)}, "
            f"which {records} without a model would"
        )
        raise UserError(f"{problem}: {HOW_TO_TRAIN}")
    return models


def _matching_rows(rows: pd.DataFrame, terms: Where, option: str) -> pd.DataFrame:
    """Return the rows that match all terms.

    Raises:
        UserError: no row matches.
    """
    for name, texts in terms.items():
        if name == "key":
            rows = rows[rows["key"].str.startswith(tuple(texts))]
        else:
            check_values(option, name, texts, rows[name].unique())
            rows = rows[is_any_of(rows[name], texts)]
        if rows.empty:
            raise UserError(f"{option} {name}={','.join(texts)}: no record has this value")
    return rows


def _check_single_dataset(rows: pd.DataFrame, results: ResultsFolder, option: str) -> None:
    """Raise UserError if models are of several datasets."""
    datasets = sorted(rows["dataset"].unique())
    if len(datasets) > 1:
        advice = f"choose with {option} dataset={'|'.join(datasets)}"
        raise UserError(f"'{results.root}' has models of several datasets: {advice}")


def _best_by_seed(rows: pd.DataFrame, best: pd.DataFrame, option: str) -> pd.DataFrame:
    """Return the best model of every seed among the models with the settings of `best`."""
    names = [name for name in SHARED_IN_MIXTURE if name in rows]
    with_best_settings = rows.merge(best[names], on=names)
    by_seed = with_best_settings.groupby("seed")
    best_of_seeds = [_best(rows_of_seed, option) for _, rows_of_seed in by_seed]
    return pd.concat(best_of_seeds)


def _load_chosen(results: ResultsFolder, row: Any) -> ChosenModel:
    """Return the model of a row of `_best`, with its description."""
    model = load_model(results, row)
    candidates = results.candidates
    methods = candidates.loc[candidates["key"] == row.key, "method"].unique()
    cell_and_methods = f"{model.cell.describe()}, {'|'.join(sorted(methods))}"
    description = f"{row.key} ({cell_and_methods}; {row.reason_for_choice})"
    return ChosenModel(row, model, description)


def load_model(results: ResultsFolder, row: Any) -> TrainedCell:
    """Return the model of a row of `results.candidates`.

    Raises:
        UserError: the file is not sound.
    """
    checksum = row.model if isinstance(row.model, str) else None  # NaN: not in the record
    try:
        model = decoded(results.store.attachment(row.dataset, row.key, MODEL, checksum))
        if model.cell.key != row.key:
            raise Unreadable("it is that of another cell")
    except Unreadable as error:
        path = results.store.path(row.dataset, row.key, MODEL, checksum)
        raise UserError(f"'{path}' can't be used: {error}; {HOW_TO_TRAIN}") from None
    return model


def _best(rows: pd.DataFrame, option: str) -> pd.DataFrame:
    """Return the row with the best validation metric, and a new column `reason_for_choice`.

    The metric is the NLL or, for models of square loss, which have no NLL, the MSE. It is computed
    for the targets before normalisation, since models of several sizes have normalised them
    differently.

    Raises:
        UserError: there are several rows, and none has a validation metric.
    """
    for metric in ("nll", "mse"):
        scores = _unnormalised_scores(rows, metric)
        scored = rows.assign(score=scores)[np.isfinite(scores)]
        if scored.empty:
            continue
        ranked = scored.sort_values(["score", "key"])
        comparable, on_which_rows = _comparable_models(ranked, option)
        best = comparable[:1]
        rank = f"the best of {len(comparable)}" if len(comparable) > 1 else "the only model"
        value = f"validation {metric.upper()} {best['score'].iloc[0]:.4f}"
        was_scaled = (_unit(rows) != 1).any()
        units = " of targets before scaling" if was_scaled else ""
        return best.assign(reason_for_choice=f"{rank}{on_which_rows}, {value}{units}")
    if len(rows) == 1:
        return rows.assign(reason_for_choice="the only model")
    keys = ", ".join(rows["key"][:MAX_NAMED_KEYS])
    advice = f"name one with {option} key=KEY, of {keys}"
    raise UserError(f"none of {len(rows)} models has validation rows to choose by: {advice}")


def _comparable_models(scored: pd.DataFrame, option: str) -> tuple[pd.DataFrame, str]:
    """Return models that were validated on the same rows, those of the best setting first.

    They are the models of a single seed. The second result is a phrase that names this seed, or ''
    if all models have the same seed.

    Settings are compared by the mean, over the seeds that have models of all settings, of the best
    score of each setting and seed. The models returned are those of the first of these seeds.

    Args:
        scored: Models with their `score`, sorted by score.
        option: The option with which the user typed the terms, for messages.

    Raises:
        UserError: No seed has models of all settings, so settings have no validation rows in
            common.
    """
    if scored["seed"].nunique() == 1:
        return scored, ""
    names = [name for name in SHARED_IN_MIXTURE if name in scored]
    setting_numbers = scored.groupby(names, dropna=False, sort=False).ngroup()
    scored = scored.assign(setting=setting_numbers)
    best_scores = scored.pivot_table(values="score", index="seed", columns="setting", aggfunc="min")
    complete = best_scores.dropna()  # the seeds with models of all settings
    if complete.empty:
        seeds = "|".join(map(str, best_scores.index))
        raise UserError(
            "the models have different settings and seeds, so that they were validated on "
            f"different rows: choose with {option} seed={seeds}, or by what they differ in"
        )
    best_setting = complete.mean().idxmin()
    seed = complete.index[0]
    models_of_seed = scored[scored["seed"] == seed]
    is_best = models_of_seed["setting"] == best_setting
    ordered = pd.concat([models_of_seed[is_best], models_of_seed[~is_best]])
    return ordered.drop(columns="setting"), f" on the validation rows of seed {seed}"


def _unit(rows: pd.DataFrame) -> pd.Series:
    """Return the unit of the normalised targets: their standard deviation before normalisation."""
    return rows["y_std"].fillna(1.0)


def _unnormalised_scores(rows: pd.DataFrame, metric: str) -> pd.Series:
    """Return the validation NLL or MSE of targets before normalisation; NaN if there is none."""
    name = f"validation_{metric}"
    if name not in rows:
        return pd.Series(np.nan, index=rows.index)
    unit = _unit(rows)
    if metric == "nll":
        # The density of y is the density of the normalised y, divided by the unit.
        return rows[name] + np.log(unit)
    return rows[name] * unit**2
