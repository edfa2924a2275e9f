"""Which trained models of a results folder are meant: by their fields, and by the best validation NLL."""

import math
from collections.abc import Sequence

from dlmexp.console import counted
from dlmexp.errors import Unreadable, UserError
from dlmexp.models.file import TrainedModel, decoded
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS, SHARED
from dlmexp.records.results import Results
from dlmexp.records.record import Record
from dlmexp.records.terms import parse_terms
from dlmexp.records.wanted import same

# What can be asked for: the fields of a cell, and what else is known of its record.
ASKED_FOR = ("key", "method", "protocol", *(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options"))
SHOWN = 8
REFIT = "give the command of that run again with refit=true (keep=all for models at every beta)"


def chosen(results: Results, where: Sequence[str], every_seed: bool = False, option: str = "--where") -> list[Record]:
    """The cell with the best validation NLL among those with a model that match all terms; with `every_seed`, the best
    one of every seed that was trained in the same way. `option` is how the user has given the terms."""
    folder, wanted = results.store.root, parse_terms(option, where, ASKED_FOR)
    with_model = [record for record in results.records.values() if results.store.has_model(record)]
    if not with_model:
        raise UserError(f"there are no models in '{folder}': {REFIT}")
    found = _matching(results, list(results.records.values()), wanted, option)
    kept = [record for record in found if results.store.has_model(record)]
    if not kept:
        without = f"which {counted(len(found), 'record')} without a model would"
        raise UserError(f"no model in '{folder}' matches {' '.join(where)}, {without}: {REFIT}")
    datasets = sorted({record.cell.dataset for record in kept})
    if len(datasets) > 1:
        raise UserError(f"'{folder}' has models of several datasets: choose with {option} dataset={'|'.join(datasets)}")
    best = _best(kept, option)
    if not every_seed:
        return [best]
    if "seed" in wanted or "key" in wanted:
        raise UserError(f"{option} {' '.join(where)}: the models of all seeds are meant; leave seed= and key= out")
    alike = [record for record in kept if record.cell.values(SHARED) == best.cell.values(SHARED)]
    seeds = sorted({record.cell.seed for record in alike})
    return [_best([record for record in alike if record.cell.seed == seed], option) for seed in seeds]


def load_model(results: Results, record: Record) -> TrainedModel:
    """The model of a record; a file that is not sound is refused in a sentence."""
    try:
        content = results.store.model(record)
        if content is None:
            raise UserError(f"cell {record.key} has no model in '{results.store.root}': {REFIT}")
        model = decoded(content)
        if model.cell != record.cell:
            raise Unreadable("it is that of another cell")
    except Unreadable as why:
        path = results.store.model_path(record)
        raise UserError(f"'{path}' can't be used: {why}; {REFIT}") from None
    return model


def described(results: Results, record: Record) -> str:
    """A model in words: its key, what was trained on what, and its validation NLL."""
    methods = "|".join(sorted({one.method for one in results.asked if record.key in one.keys}))
    nll = record.result.validation.get("nll")
    score = "" if nll is None else f", validation NLL {nll:.4f}"
    return f"{record.key} ({record.cell.describe()}{f', {methods}' if methods else ''}{score})"


def _matching(results: Results, records: list[Record], wanted: dict[str, list[str]], option: str) -> list[Record]:
    methods: dict[str, set[str]] = {}
    protocols: dict[str, set[str]] = {}
    for one in results.asked:
        for key in one.keys:
            methods.setdefault(key, set()).add(one.method)
            protocols.setdefault(key, set()).add(one.protocol)
    for name, values in wanted.items():

        def of(record: Record, name: str = name) -> set[object]:
            if name == "method":
                return set(methods.get(record.key, ()))
            if name == "protocol":
                return set(protocols.get(record.key, ()))
            return {record.cell.flat().get(name)}

        def fits(record: Record, name: str = name, values: list[str] = values) -> bool:
            if name == "key":
                return any(record.key.startswith(text) for text in values)
            return any(same(value, text) for value in of(record) for text in values)

        left = [record for record in records if fits(record)]
        if not left:
            known = sorted({str(value) for record in records for value in of(record)} if name != "key" else set())
            there = f"; there are {', '.join(known[:SHOWN])}" if known else ""
            raise UserError(f"{option} {name}={','.join(values)}: no record has this value{there}")
        records = left
    return records


def _best(records: list[Record], option: str) -> Record:
    """By validation NLL in own units: on the normalised scale, sizes and seeds have units of their own. MSE where there
    is no NLL (square loss); the only one where there are no validation rows."""
    for metric in ("nll", "mse"):
        scored = [(score, record.key, record) for record in records if (score := _score(record, metric)) is not None]
        if scored:
            return min(scored)[2]
    if len(records) == 1:
        return records[0]
    keys = ", ".join(record.key for record in records[:SHOWN])
    raise UserError(
        f"none of {len(records)} models has validation rows to choose by: name one with {option} key=KEY, of {keys}"
    )


def _score(record: Record, metric: str) -> float | None:
    value, unit = record.result.validation.get(metric), record.result.y_std or 1.0
    if value is None or not math.isfinite(value):
        return None
    return value + math.log(unit) if metric == "nll" else value * unit**2
