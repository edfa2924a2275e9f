"""Choose models of a results folder: by terms such as `dataset=cadata`, then by validation NLL.

The validation rows depend on the seed, and models are compared only on the same rows.
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
SELECTABLE = ("key", "method", "protocol", *CELL_FIELDS)
"""The names in the terms by which users choose."""
DIFFERING_IN_MIXTURE = ("options", *SELECTED_FIELDS)
SHARED_IN_MIXTURE = [
    name for name in (*SHARED_IN_BATCH, *FIRST_OPTIONS) if name not in DIFFERING_IN_MIXTURE
]
"""The fields in which all models of one mixture agree."""
SHOWN_KEYS = 8
HOW_TO_TRAIN = (
    "give the command of that run with results= a new folder (keep=all for models at every beta)"
)


@dataclass(frozen=True)
class ChosenModel:
    """A chosen model.

    Attributes:
        row: Its row in `ResultsFolder.candidates`.
        model: The model.
        description: Its key, its description, and why it was chosen.
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
        every_seed: Return the best model of each seed, among those with the settings of the best
            model of all.
        option: How the user has typed the terms, for messages.

    Raises:
        UserError: no model matches, or those that match can't be compared.
    """
    terms = parse_terms(option, where, SELECTABLE)
    candidates = _matching_models(results, terms, where, option)
    _check_single_dataset(candidates, results, option)
    best = _best(candidates, option)
    if every_seed:
        if "seed" in terms or "key" in terms:
            typed = f"{option} {' '.join(where)}"
            raise UserError(f"{typed}: the models of all seeds are meant; leave seed= and key= out")
        best = _best_by_seed(candidates, best, option)
    return [_load_chosen(results, row) for row in best.itertuples()]


def _matching_models(
    results: ResultsFolder, terms: Where, where: Sequence[str], option: str
) -> pd.DataFrame:
    """Return the rows of `results.candidates` that match the terms and have a model, by cell.

    Raises:
        UserError: there is none.
    """
    rows = results.candidates
    is_done = rows["status"] == "done"
    has_model = rows["key"].isin(results.store.model_files()) & is_done
    if "model" not in rows or not has_model.any():
        raise UserError(f"there are no models in '{results.root}': {HOW_TO_TRAIN}")
    matching = _matching_rows(rows, terms, option).drop_duplicates("key")
    models = matching[has_model[matching.index]]
    if models.empty:
        without_model = f"which {counted(len(matching), 'record')} without a model would"
        problem = f"no model in '{results.root}' matches {' '.join(where)}, {without_model}"
        raise UserError(f"{problem}: {HOW_TO_TRAIN}")
    return models


def _matching_rows(rows: pd.DataFrame, terms: Where, option: str) -> pd.DataFrame:
    """Return the rows that match all terms.

    Raises:
        UserError: there is none.
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
    """Return the best model of every seed among those with the settings of `best`."""
    names = [name for name in SHARED_IN_MIXTURE if name in rows]
    alike = rows.merge(best[names], on=names)
    best_of_seeds = [_best(rows_of_seed, option) for _, rows_of_seed in alike.groupby("seed")]
    return pd.concat(best_of_seeds)


def _load_chosen(results: ResultsFolder, row: Any) -> ChosenModel:
    """Return the model of a row of `_best`, with its description."""
    model = load_model(results, row)
    candidates = results.candidates
    methods = candidates.loc[candidates["key"] == row.key, "method"].unique()
    trained = f"{model.cell.describe()}, {'|'.join(sorted(methods))}"
    return ChosenModel(row, model, f"{row.key} ({trained}; {row.why})")


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
    """Return the row with the best validation metric, with the reason in a column `why`.

    The metric is the NLL or, for models of square loss, which have none, the MSE. It is that of the
    targets before normalisation, since models of several sizes have normalised them differently.

    Raises:
        UserError: there are several rows, and none has a validation metric.
    """
    for metric in ("nll", "mse"):
        scores = _unnormalised_scores(rows, metric)
        scored = rows.assign(score=scores)[np.isfinite(scores)]
        if scored.empty:
            continue
        comparable, on_which_rows = _on_the_same_rows(scored.sort_values(["score", "key"]), option)
        best = comparable[:1]
        count = f"the best of {len(comparable)}" if len(comparable) > 1 else "the only model"
        value = f"validation {metric.upper()} {best['score'].iloc[0]:.4f}"
        was_scaled = (_unit(rows) != 1).any()
        units = " of targets before scaling" if was_scaled else ""
        return best.assign(why=f"{count}{on_which_rows}, {value}{units}")
    if len(rows) == 1:
        return rows.assign(why="the only model")
    keys = ", ".join(rows["key"][:SHOWN_KEYS])
    advice = f"name one with {option} key=KEY, of {keys}"
    raise UserError(f"none of {len(rows)} models has validation rows to choose by: {advice}")


def _on_the_same_rows(scored: pd.DataFrame, option: str) -> tuple[pd.DataFrame, str]:
    """Return the models of one seed, the best first, and a phrase that names the seed.

    Each setting is represented by its best model of each seed. Settings are compared by the mean
    score over the seeds that have models of all settings. Of the first of these seeds all models
    are returned, those of the best setting first.

    Args:
        scored: Models with their `score`, sorted by it.
        option: How the user has typed the terms, for messages.

    Raises:
        UserError: No seed has all settings, so that no comparison would be on the same rows.
    """
    if scored["seed"].nunique() == 1:
        return scored, ""
    names = [name for name in SHARED_IN_MIXTURE if name in scored]
    setting_numbers = scored.groupby(names, dropna=False, sort=False).ngroup()
    scored = scored.assign(setting=setting_numbers)
    by_seed = scored.pivot_table("score", "seed", "setting", aggfunc="min")
    complete = by_seed.dropna()
    if complete.empty:
        seeds = "|".join(map(str, by_seed.index))
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
        # The density of y is that of the normalised y, divided by the unit.
        return rows[name] + np.log(unit)
    return rows[name] * unit**2
