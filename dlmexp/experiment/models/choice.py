"""Which models of a results folder are meant: by their fields, and by the best validation NLL.

The validation rows depend on the seed. Models are compared on the same rows only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common.console import counted
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.experiment.models.file import TrainedCell, decoded
from dlmexp.experiment.plan.cell import FIELDS, FIRST_OPTIONS, SELECTED, SHARED
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where, check_values, named, parse_terms
from dlmexp.experiment.records.store import MODEL

CELL_FIELDS = tuple(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options")
SELECTABLE = ("key", "method", "protocol", *CELL_FIELDS)
"""What users choose by."""
DIFFERING_IN_MIXTURE = ("options", *SELECTED)
SHARED_IN_MIXTURE = [name for name in (*SHARED, *FIRST_OPTIONS) if name not in DIFFERING_IN_MIXTURE]
"""What models of one mixture share."""
SHOWN_KEYS = 8
TRAIN = (
    "give the command of that run with results= a new folder (keep=all for models at every beta)"
)


@dataclass(frozen=True)
class Chosen:
    """A model, and why it was chosen.

    Attributes:
        row: Its row in `ResultsFolder.candidates`.
        model: The model.
        words: Its key, what was trained on what, why it was chosen.
    """

    row: Any
    model: TrainedCell
    words: str


def choose_models(
    results: ResultsFolder, where: Sequence[str], every_seed: bool = False, option: str = "--where"
) -> list[Chosen]:
    """Return the model with the best validation NLL among those that match all terms.

    Args:
        results: The results folder.
        where: Terms such as `dataset=cadata`.
        every_seed: Return the best model of every seed that was trained like the best of all.
        option: How the user has typed the terms, for messages.

    Raises:
        UserError: no model matches, or the terms leave open which model is meant.
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
    has_model = rows["key"].isin(results.store.keys_with_models()) & is_done
    if "model" not in rows or not has_model.any():
        raise UserError(f"there are no models in '{results.root}': {TRAIN}")
    matching = _matching_rows(rows, terms, option).drop_duplicates("key")
    models = matching[has_model[matching.index]]
    if models.empty:
        without_model = f"which {counted(len(matching), 'record')} without a model would"
        problem = f"no model in '{results.root}' matches {' '.join(where)}, {without_model}"
        raise UserError(f"{problem}: {TRAIN}")
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
            rows = rows[named(rows[name], texts)]
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
    """Return the best model of every seed among those that were trained like `best`."""
    names = [name for name in SHARED_IN_MIXTURE if name in rows]
    alike = rows.merge(best[names], on=names)
    best_of_seeds = [_best(of_seed, option) for _, of_seed in alike.groupby("seed")]
    return pd.concat(best_of_seeds)


def _load_chosen(results: ResultsFolder, row: Any) -> Chosen:
    """Return the model of a row of `_best`, with its description."""
    model = load_model(results, row)
    candidates = results.candidates
    methods = candidates.loc[candidates["key"] == row.key, "method"].unique()
    trained = f"{model.cell.describe()}, {'|'.join(sorted(methods))}"
    return Chosen(row, model, f"{row.key} ({trained}; {row.why})")


def load_model(results: ResultsFolder, row: Any) -> TrainedCell:
    """Return the model of a row of `results.candidates`.

    Raises:
        UserError: the file is not sound.
    """
    try:
        model = decoded(results.store.beside(row.dataset, row.key, MODEL, row.model))
        if model.cell.key != row.key:
            raise Unreadable("it is that of another cell")
    except Unreadable as error:
        path = results.store.path(row.dataset, row.key, MODEL, row.model)
        raise UserError(f"'{path}' can't be used: {error}; {TRAIN}") from None
    return model


def _best(rows: pd.DataFrame, option: str) -> pd.DataFrame:
    """Return the row with the best validation metric; its column `why` is a description.

    The metric is the NLL before normalisation, as sizes are normalised differently. It is the MSE
    where there is no NLL (square loss). Without validation rows there must be one row.

    Raises:
        UserError: there are several rows and nothing to choose by.
    """
    for metric in ("nll", "mse"):
        scores = _unnormalised_scores(rows, metric)
        scored = rows.assign(score=scores)[np.isfinite(scores)]
        if scored.empty:
            continue
        comparable, where = _on_the_same_rows(scored.sort_values(["score", "key"]), option)
        best = comparable[:1]
        count = f"the best of {len(comparable)}" if len(comparable) > 1 else "the only model"
        value = f"validation {metric.upper()} {best['score'].iloc[0]:.4f}"
        was_scaled = (_unit(rows) != 1).any()
        units = " of targets before scaling" if was_scaled else ""
        return best.assign(why=f"{count}{where}, {value}{units}")
    if len(rows) == 1:
        return rows.assign(why="the only model")
    keys = ", ".join(rows["key"][:SHOWN_KEYS])
    advice = f"name one with {option} key=KEY, of {keys}"
    raise UserError(f"none of {len(rows)} models has validation rows to choose by: {advice}")


def _on_the_same_rows(scored: pd.DataFrame, option: str) -> tuple[pd.DataFrame, str]:
    """Return the models of one seed, the best first, and which seed it is, in words.

    Settings are compared by their best model of each seed, averaged over the seeds that have all
    settings. The models returned are those of the first of these seeds; the first one has the best
    settings.

    Args:
        scored: Models with their `score`, sorted by it.
        option: How the user has typed the terms, for messages.

    Raises:
        UserError: No seed has all settings, so that no comparison would be on the same rows.
    """
    if scored["seed"].nunique() == 1:
        return scored, ""
    names = [name for name in SHARED_IN_MIXTURE if name in scored]
    settings = scored.groupby(names, dropna=False, sort=False).ngroup()
    scored = scored.assign(settings=settings)
    by_seed = scored.pivot_table("score", "seed", "settings", aggfunc="min")
    complete = by_seed.dropna()
    if complete.empty:
        seeds = "|".join(str(seed) for seed in by_seed.index)
        raise UserError(
            "the models have different settings and seeds, so that they were validated on "
            f"different rows: choose with {option} seed={seeds}, or by what they differ in"
        )
    winner = complete.mean().idxmin()
    seed = complete.index[0]
    of_seed = scored[scored["seed"] == seed]
    is_winner = of_seed["settings"] == winner
    ordered = pd.concat([of_seed[is_winner], of_seed[~is_winner]])
    return ordered.drop(columns="settings"), f" on the validation rows of seed {seed}"


def _unit(rows: pd.DataFrame) -> pd.Series:
    """Return what one unit of the normalised targets is before normalisation."""
    return rows["y_std"].fillna(1.0)


def _unnormalised_scores(rows: pd.DataFrame, metric: str) -> pd.Series:
    """Return the validation NLL or MSE of targets before normalisation; NaN where there is none."""
    name = f"validation_{metric}"
    if name not in rows:
        return pd.Series(np.nan, index=rows.index)
    unit = _unit(rows)
    if metric == "nll":
        return rows[name] + np.log(unit)
    return rows[name] * unit**2
