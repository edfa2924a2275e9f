"""Differences between results of the same cells: in two results folders, or trained here in batches of different sizes,
in float32 and float64 and, where there is a GPU, on CPU and GPU."""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlmexp.benchmark.measure import Measurement, print_all
from dlmexp.errors import UserError

if TYPE_CHECKING:
    from dlmexp.records.results import Results
    from dlmexp.records.record import Record

MIN_SHARE = 95.0  # per cent
CLOSE = 1e-4  # nats
CLOSE_DTYPES = 1e-2  # the same between float32 and float64
SMALL_BATCH = 3  # cells
STANDARD = (
    ("dataset=[banana,ringnorm,abalone]", "sizes=[100]"),
    ("dataset=[cadata]", "sizes=['5%']"),
)  # what docs/SPEC.md, section 6, states the share for
WITH_ALL = ("protocol=converged", "seeds=[0,1]")


class Way(NamedTuple):
    """One way to train the same cells."""

    name: str
    words: tuple[str, ...]


DTYPES = [Way(name, (f"dtype={name}",)) for name in ("float64", "float32")]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark agreement", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        metavar="RESULTS RESULTS | WORD",
        help="two results folders, or words as for `dlmexp run` (datasets, sizes, seeds, protocol) whose cells are "
        "trained here; nothing: banana, ringnorm and abalone with n=100 and cadata with 5 %%, seeds 0 and 1, "
        "protocol=converged",
    )
    parser.add_argument(
        "--between",
        choices=["batches", "devices", "both", "dtypes"],
        default="both",
        help="which ways of training are compared: batches as large as fit and of 3 cells, CPU and GPU, both of these "
        "(default; without a GPU: batches), or float32 and float64",
    )
    parser.add_argument("--keep", metavar="FOLDER", help="where the results go, and are taken from if they are there")
    args = parser.parse_args(argv)
    if args.what and not any("=" in word for word in args.what):
        if len(args.what) != 2 or args.keep:
            raise UserError(f"'{' '.join(args.what)}': give two results folders, or words as for `dlmexp run`")
        from dlmexp.records.results import load

        one, other = (load(folder) for folder in args.what)
        return 0 if print_all(agreement(one, other)) else 1
    runs = [tuple(args.what)] if args.what else [(*words, *WITH_ALL) for words in STANDARD]
    with tempfile.TemporaryDirectory() as temporary:
        return 0 if print_all(trained(runs, ways(args.between), Path(args.keep or temporary))) else 1


def ways(between: str) -> list[Way]:
    """The ways of training that are compared, each with every other."""
    import torch

    if between == "dtypes":
        return DTYPES
    if torch.cuda.is_available():
        found = [Way("GPU", ("device=cuda",))]
        if between != "batches":
            found.append(Way("CPU", ("device=cpu",)))
        if between != "devices":
            found.append(Way(f"GPU, {SMALL_BATCH} cells at once", ("device=cuda", f"batch_cells={SMALL_BATCH}")))
        return found
    if between == "devices":
        raise UserError("--between devices: there is no CUDA device here; --between batches needs none")
    small = Way(f"CPU, {SMALL_BATCH} cells at once", ("device=cpu", f"batch_cells={SMALL_BATCH}"))
    return [Way("CPU", ("device=cpu",)), small]


def trained(runs: Sequence[tuple[str, ...]], ways: Sequence[Way], root: Path) -> Iterator[Measurement]:
    """Train the cells of `runs` in each way, and compare every two."""
    from dlmexp.records.results import load

    found = {}
    for i, way in enumerate(ways):
        folder = root / f"{i}-{way.name.replace(', ', '-').replace(' ', '-').lower()}"
        for words in runs:
            _run((*words, *way.words, f"results={folder}"))
        found[way.name] = load(folder)
    for one, other in combinations(found, 2):
        print(f"\n{one} | {other}")
        if other == "float32":
            yield from agreement(found[one], in_float64(found[other]), CLOSE_DTYPES)
        else:
            yield from agreement(found[one], found[other])


def _run(words: tuple[str, ...]) -> None:
    from dlmexp.plan.compose import compose
    from dlmexp.running.run import execute

    code = execute(compose(list(words)))
    if code > 1:  # stopped by a signal; 1: some cells failed
        raise SystemExit(code)


def in_float64(results: "Results") -> "Results":
    """The same results as if their cells had been asked for in float64: under the keys of those cells."""
    from msgspec.structs import replace

    from dlmexp.records.results import Results

    @cache
    def twin(key: str) -> "Record":
        record = results.records[key]
        base = record.cell.base and (twin(record.cell.base).key if record.cell.base in results.records else None)
        cell = replace(record.cell, dtype="float64", base=base)
        return replace(record, cell=cell, key=cell.key)

    asked = [
        replace(group, keys=tuple(twin(key).key if key in results.records else key for key in group.keys))
        for group in results.asked
    ]
    return Results(results.store, map(twin, results.records), asked)


def agreement(one: "Results", other: "Results", close: float = CLOSE) -> list[Measurement]:
    """How many cells failed, how many deterministic ones stop by their rule, differences in test NLL (MSE where a
    method predicts no variance) of the cells in both folders, altogether and by dataset and method, and how often
    validation selects the same beta."""
    import numpy as np

    from dlmexp.records.selection import on_test

    for results in (one, other):
        if not any(np.isfinite(on_test(record, "nll")) for record in results.records.values()):
            raise UserError(f"'{results.store.root}' has no finished cells with a test NLL: run some of them first")

    def apart(metric: str) -> dict[str, float]:
        found = {
            key: abs(on_test(one.records[key], metric) - on_test(other.records[key], metric))
            for key in one.records
            if key in other.records
        }
        return {key: value for key, value in found.items() if np.isfinite(value)}

    difference = apart("nll")
    without_nll = {key: value for key, value in apart("mse").items() if key not in difference}
    if not difference:
        raise UserError(
            "the two folders have no finished cell in common: give two results of the same 'dlmexp run' command"
        )
    everywhere = np.array(list(difference.values()))
    lines = [
        Measurement("failed, of all cells of the first", _failures(one), ""),
        Measurement("failed, of all cells of the second", _failures(other), "", float(_failures(one))),
        Measurement("cells in both", len(difference), ""),
        Measurement("test NLL identical in every bit", 100 * float((everywhere == 0).mean()), "%"),
    ]
    by_rule = [value for key, value in difference.items() if all(_by_rule(r.records[key]) for r in (one, other))]
    for within in (CLOSE, 1e-3, 1e-2):
        lines.append(Measurement(f"test NLL within {within:g}", 100 * float((everywhere <= within).mean()), "%"))
        if by_rule and within == close:
            name = f"the same, of {len(by_rule)} cells that stopped by their rule in both"
            share = 100 * sum(value <= close for value in by_rule) / len(by_rule)
            lines.append(Measurement(name, share, "%", MIN_SHARE, at_least=True))
    lines.append(Measurement("largest difference in test NLL", everywhere.max(), "nats"))
    if without_nll:
        name = f"largest difference in test MSE, of {len(without_nll)} without an NLL"
        lines.append(Measurement(name, max(without_nll.values()), ""))
    lines += _stopped(one, other)
    lines += _by(one, difference, close, lambda r: f"{r.cell.dataset}, {r.cell.variant} {r.cell.objective}")
    lines += _by(one, difference, close, lambda r: _range(r.cell.beta))
    return lines + _selected(one, other, close)


def _failures(results: "Results") -> int:
    return sum(record.status == "failed" for record in results.records.values())


def _stopped(one: "Results", other: "Results") -> list[Measurement]:
    """The shares of deterministic fits that stopped by their rule, not at the limit: of all but joint square loss (no
    minimiser); of those without a note that there is no minimiser, or may be none; and of those with such a note."""
    fits = [record for record in (*one.records.values(), *other.records.values()) if _has_rule(record)]
    kinds = (
        ("stopped by the rule, joint sq-DLM apart", [r for r in fits if not _is_joint_square(r)], MIN_SHARE),
        ("the same, all without a minimiser apart", [r for r in fits if r.result.note is None], MIN_SHARE),
        ("the same, of those without a minimiser", [r for r in fits if r.result.note is not None], None),
    )
    return [
        Measurement(f"{name}, of {len(some)} fits", 100 * sum(map(_by_rule, some)) / len(some), "%", limit, True)
        for name, some, limit in kinds
        if some
    ]


def _is_joint_square(record: "Record") -> bool:
    return (record.cell.objective, record.cell.variant) == ("sq_dlm", "joint")


def _has_rule(record: "Record") -> bool:
    """Whether it is a fit of a deterministic objective with a stopping rule."""
    from dlmexp.estimators import ESTIMATORS

    drawn = record.cell.minibatch is not None or ESTIMATORS[record.cell.estimator].sampled
    return record.cell.has_stopping_rule and not drawn


def _by_rule(record: "Record") -> bool:
    """Whether it stopped by that rule, not at the limit."""
    return _has_rule(record) and bool(record.result.converged)


def _by(
    one: "Results", difference: dict[str, float], close: float, name: Callable[["Record"], str]
) -> Iterator[Measurement]:
    """The share within `close` of each kind of cells."""
    kinds: dict[str, list[bool]] = defaultdict(list)
    for key, value in difference.items():
        kinds[name(one.records[key])].append(value <= close)
    for kind, near in sorted(kinds.items()):
        yield Measurement(f"{kind}: within {close:g}, of {len(near)}", 100 * sum(near) / len(near), "%")


def _range(beta: float | None) -> str:
    if beta is None:
        return "no beta"
    if beta == 0:
        return "beta = 0"
    return "beta < 0.1" if beta < 0.1 else "beta >= 1" if beta >= 1 else "0.1 <= beta < 1"


def _selected(one: "Results", other: "Results", close: float) -> list[Measurement]:
    """How often validation selects the same beta, and how far the test NLL of what it selects is apart."""
    from dlmexp.records.selection import choices, on_test

    asked = [group for group in dict.fromkeys([*one.asked, *other.asked]) if len(group.keys) > 1]
    selected = [
        {(c.method, c.betas, c.protocol, c.cell.identity): c.selected() for c in choices(asked, r.records)}
        for r in (one, other)
    ]
    pairs = [(ours, selected[1].get(which)) for which, ours in selected[0].items()]
    both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    if not both:
        return []
    same = 100 * sum(ours.key == theirs.key for ours, theirs in both) / len(both)
    lines = [Measurement(f"same beta selected, of {len(both)} selections", same, "%", MIN_SHARE, at_least=True)]
    apart = [abs(on_test(ours, "nll") - on_test(theirs, "nll")) for ours, theirs in both]
    if found := [each for each in apart if each == each]:
        share = 100 * sum(each <= close for each in found) / len(found)
        lines.append(Measurement(f"test NLL of what is selected within {close:g}, of {len(found)}", share, "%"))
        lines.append(Measurement("largest difference in test NLL of what is selected", max(found), "nats"))
    return lines
