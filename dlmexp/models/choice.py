"""Which trained models of a results folder are meant: by their fields, and by the best validation NLL."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dlmexp.console import counted
from dlmexp.errors import Unreadable, UserError
from dlmexp.models.file import TrainedCell, decoded
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS, SHARED
from dlmexp.records.results import ResultsFolder
from dlmexp.records.store import MODEL
from dlmexp.records.table import Term, fitting_values, parse_terms

# What can be asked for: the fields of a cell, and what else is known of its record.
ASKED_FOR = ("key", "method", "protocol", *(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options"))
ALIKE = [name for name in SHARED if name != "options"]  # what models of one mixture share, with their options
SHOWN = 8
TRAIN = "give the command of that run with results= a new folder (keep=all for models at every beta)"


class Chosen(NamedTuple):
    """A model, its row in `results.candidates`, and in words: its key, what was trained on what, why it was chosen."""

    row: Any
    model: TrainedCell
    words: str


def choose_models(
    results: ResultsFolder, where: Sequence[str], every_seed: bool = False, option: str = "--where"
) -> list[Chosen]:
    """The model with the best validation NLL among those that match all terms; with `every_seed`, the best one of every
    seed that was trained in the same way. `option` is how the user has given the terms."""
    folder, wanted = results.root, parse_terms(option, where, ASKED_FOR)
    rows = results.candidates
    with_model = rows["key"].isin(results.store.keys_with_models()) & (rows["status"] == "done") & ("model" in rows)
    if not with_model.any():
        raise UserError(f"there are no models in '{folder}': {TRAIN}")
    matching = _matching(rows, wanted, option).drop_duplicates("key")
    kept = matching[with_model[matching.index]]
    if kept.empty:
        without = f"which {counted(len(matching), 'record')} without a model would"
        raise UserError(f"no model in '{folder}' matches {' '.join(where)}, {without}: {TRAIN}")
    datasets = sorted(kept["dataset"].unique())
    if len(datasets) > 1:
        raise UserError(f"'{folder}' has models of several datasets: choose with {option} dataset={'|'.join(datasets)}")
    best = _best(kept, option)
    if every_seed:
        if any(term.name in ("seed", "key") for term in wanted):
            raise UserError(f"{option} {' '.join(where)}: the models of all seeds are meant; leave seed= and key= out")
        names = [name for name in (*ALIKE, *FIRST_OPTIONS) if name in kept]
        alike = kept.merge(best[names], on=names)
        best = pd.concat([_best(of_seed, option) for _, of_seed in alike.groupby("seed")])
    chosen = []
    for row in best.itertuples():
        model = load_model(results, row)
        methods = "|".join(sorted(rows.loc[rows["key"] == row.key, "method"].unique()))
        chosen.append(Chosen(row, model, f"{row.key} ({model.cell.describe()}, {methods}; {row.why})"))
    return chosen


def load_model(results: ResultsFolder, row: Any) -> TrainedCell:
    """The model of a row of `results.candidates`; UserError for a file that is not sound."""
    try:
        content = results.store.model(row.dataset, row.key, row.model)
        if content is None:
            raise UserError(f"cell {row.key} has no model in '{results.root}': {TRAIN}")
        model = decoded(content)
        if model.cell.key != row.key:
            raise Unreadable("it is that of another cell")
    except Unreadable as why:
        path = results.store.path(row.dataset, row.key, MODEL, row.model)
        raise UserError(f"'{path}' can't be used: {why}; {TRAIN}") from None
    return model


def _matching(rows: pd.DataFrame, wanted: Sequence[Term], option: str) -> pd.DataFrame:
    for term in wanted:
        values = rows[term.name].unique()
        if term.name == "key":
            fitting = [value for value in values if value.startswith(tuple(term.value.split(",")))]
        else:
            fitting = fitting_values(option, term, values)
        rows = rows[rows[term.name].isin(fitting)]
        if rows.empty:
            raise UserError(f"{option} {term.name}={term.value}: no record has this value")
    return rows


def _best(rows: pd.DataFrame, option: str) -> pd.DataFrame:
    """By validation NLL in own units: on the normalised scale, sizes and seeds have units of their own. MSE where there
    is no NLL (square loss); the only one where there are no validation rows. Its column `why` says so in words."""
    unit = rows["y_std"].fillna(1.0)
    for metric, in_own_units in (("nll", lambda v: v + np.log(unit)), ("mse", lambda v: v * unit**2)):
        name = f"validation_{metric}"
        scores = in_own_units(rows[name]) if name in rows else pd.Series(np.nan, index=rows.index)
        finite = rows.assign(score=scores)[np.isfinite(scores)].sort_values(["score", "key"])
        if len(finite):
            units = " of targets before scaling" if (unit != 1).any() else ""
            count = f"the best of {len(finite)}" if len(finite) > 1 else "the only model"
            why = f"{count}, validation {metric.upper()} {finite['score'].iloc[0]:.4f}{units}"
            return finite[:1].assign(why=why)
    if len(rows) == 1:
        return rows.assign(why="the only model")
    advice = f"name one with {option} key=KEY, of {', '.join(rows['key'][:SHOWN])}"
    raise UserError(f"none of {len(rows)} models has validation rows to choose by: {advice}")
