"""The work of `dlmexp plot`: chooses which drawings to make, computes their numbers, draws and saves them."""

import re
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from dlmexp.config import PARAMETERISATIONS
from dlmexp.errors import UserError
from dlmexp.figures.measure import Drawn, measure, without_empty_columns
from dlmexp.figures.own import OWN, check_ids, own_datasets, own_drawings, with_commands
from dlmexp.figures.panels import Figure
from dlmexp.figures.presets import groups, presets, renamed
from dlmexp.figures.registry import find
from dlmexp.figures.save import save
from dlmexp.figures.series import coordinates, own_coordinates
from dlmexp.figures.style import Page
from dlmexp.figures.variants import Drawing, drawings, of_methods, on_datasets, restrict, side_by_side
from dlmexp.records.results import Results
from dlmexp.records.settings import PAPER, PROTOCOLS
from dlmexp.records.wanted import ANY, Wanted, check_at_hand

MIN_FOR_PROCESSES = 8  # with fewer figures, starting processes takes longer than drawing


@dataclass(frozen=True)
class Request:
    """What is asked of `dlmexp plot`, figures aside."""

    by: Mapping[str, list[str]] = field(default_factory=dict)
    parameterisation: str | None = None
    wanted: Wanted = ANY
    compare_protocols: bool = False


AS_USUAL = Request()


def choose(several: list[Results], ids: list[str], request: Request = AS_USUAL) -> list[Drawing]:
    """The drawings of the figures `ids` (empty: all). Without a dataset and a parameterisation: all variants."""
    by, parameterisation = request.by, request.parameterisation
    named = [name for name in ids if name.startswith(OWN)]
    wanted = find([name for name in ids if name not in named]) if ids != named or not ids else []
    present = {dataset: task for results in several for dataset, task in results.tasks.items()}
    own = [one for one in own_datasets(several) if f"{OWN}{one}" in named and one in by.get("dataset", [one])]
    chosen = own_drawings(several, own, parameterisation)
    if datasets := by.get("dataset"):
        ours = [name for name in datasets if name not in own_datasets(several)]
        alone = [] if ids else [name for name in datasets if name not in ours]
        found = own_drawings(several, alone, parameterisation)
        for figure in wanted if ids or ours else ():
            if (drawing := on_datasets(figure, datasets if ids else ours, present)) is not None:
                found.append(with_commands(drawing, several))
        if not found and not chosen:
            raise UserError(f"--by dataset={','.join(datasets)}: {_no_panel(wanted, named, datasets)}")
        chosen += [_parameterised(drawing, parameterisation or "whitened") for drawing in found]
    elif parameterisation:
        plain = [drawings(figure, present, set()) for figure in wanted]
        chosen += [_parameterised(drawing, parameterisation) for variants in plain for drawing in variants]
    else:
        run = _other_coordinates(several, request.wanted.protocol)
        chosen += [drawing for figure in wanted for drawing in drawings(figure, present, run)]
    if not ids and not by.get("dataset"):
        chosen += own_drawings(several, own_datasets(several), parameterisation)
    if methods := by.get("method"):
        chosen = [of_methods(drawing, methods) for drawing in chosen]
    only = tuple(
        f"{name} = {' or '.join(values)}" + (" of methods that have one to choose" if name == "beta" else "")
        for name, values in by.items()
        if name not in ("dataset", "method")
    )
    chosen = [replace(drawing, only=only) for drawing in chosen]
    if request.compare_protocols and len(every := _protocols(several)) > 1:
        beside = [every if parameterisation else _protocols(several, one.parameterisation) for one in chosen]
        together = zip(chosen, beside, strict=True)
        chosen = [side_by_side(drawing, names) for drawing, names in together if len(names) > 1]
    rest = [f"{name}={'+'.join(values)}" for name, values in by.items() if name != "dataset"]
    rest += [name for name in (request.wanted.protocol,) if name and name not in (PAPER, *presets(several))]
    rest += [term.typed.removeprefix("training.") for term in request.wanted.where]
    return [_renamed(drawing, rest) for drawing in chosen] if rest else chosen


def _other_coordinates(several: list[Results], protocol: str | None) -> set[str]:
    """The parameterisations of q that a protocol has beside the one that it is drawn in anyway, where they were run."""
    choices = [one for results in several for one in results.choices if protocol in (None, one.protocol)]
    run = [(one.cell.parameterisation, one) for one in choices]
    return {how for how, one in run if how in own_coordinates(one) and how != coordinates(one, PARAMETERISATIONS[0])}


def _renamed(drawing: Drawing, words: list[str]) -> Drawing:
    return replace(drawing, name=re.sub(r"[^\w.=+-]+", "_", "-".join([drawing.name, *words])))


def _protocols(several: list[Results], parameterisation: str = PARAMETERISATIONS[0]) -> list[str]:
    """Those at hand, in the order in which they are shown; only those that are drawn in this parameterisation of q, or
    in another one in its place."""
    choices = [one for results in several for one in results.choices]
    names = {one.protocol for one in choices if coordinates(one, parameterisation) in own_coordinates(one)}
    return [*(name for name in PROTOCOLS if name in names), *sorted(names.difference(PROTOCOLS))]


def comparable(several: list[Results]) -> bool:
    """Whether there are protocols to draw side by side. A preset's are compared with each other alone."""
    return any(len(_protocols(some)) > 1 for some in groups(several, together=True).values())


def _check_comparable(several: list[Results]) -> None:
    if not comparable(several):
        names = _protocols(several) or [PAPER]
        at_hand = f"all records are of protocol {names[0]}"
        if len(names) > 1:
            at_hand = f"of {' and '.join(names)} none can stand beside another, for a preset's results are drawn apart"
        raise UserError(f"--compare-protocols: {at_hand}; protocol=NAME makes a run use another")


def _no_panel(wanted: list[Figure], own: list[str], datasets: list[str]) -> str:
    """`own`: the ids of figures of own data, each of which shows one dataset."""
    ids = [*(figure.id for figure in wanted), *own]
    names = {panel.dataset for figure in wanted for panel in figure.panels} | {name.removeprefix(OWN) for name in own}
    which = ", ".join(ids) if len(ids) < 4 else "any figure"
    show = "shows" if len(ids) == 1 else "show"
    return f"{' and '.join(datasets)} has no panel in {which}, which {show} {', '.join(sorted(names))}"


def _parameterised(drawing: Drawing, how: str) -> Drawing:
    if drawing.figure.id.startswith(OWN):
        return drawing
    name = drawing.name if how == "whitened" else f"{drawing.name}-{how}"
    return replace(drawing, name=name, parameterisation=how, options=(*drawing.options, "--parameterisation", how))


def datasets_not_drawn(several: list[Results], ids: list[str], shown: list[Drawing]) -> list[str]:
    """Datasets with records that are in none of the drawings, although one of the figures could show them. Not those
    that have a place in a figure: that is drawn if it is asked for."""
    wanted = find([name for name in ids if not name.startswith(OWN)])
    present = {dataset: task for results in several for dataset, task in results.tasks.items()}
    drawn = {panel.dataset for figure in (*shown, *find([])) for panel in figure.panels}
    return [
        name for name in present if name not in drawn and any(on_datasets(figure, [name], present) for figure in wanted)
    ]


def measured(
    several: list[Results], ids: list[str], request: Request = AS_USUAL, error: str = "std"
) -> Iterator[Drawn]:  # fmt: skip
    """The chosen drawings with their numbers, one after another. A figure that is named is drawn without results too,
    unless a preset has some. UserError where figures or records are chosen and nothing is drawn."""
    by = request.by
    check_ids(ids, several)
    for results in several:
        check_at_hand(results.settings, results.choices, request.wanted)
    if request.compare_protocols:
        _check_comparable(several)
    whole: list[Drawn] = []
    small: list[Drawn] = []
    for preset, some in _having(groups(several, request.compare_protocols), ids, request).items():
        kept = [restrict(results, by) if set(by) - {"dataset"} else results for results in some]
        for drawing in choose(some, ids, request):
            drawn = measure(renamed(drawing, preset) if preset else drawing, kept, error, request.wanted)
            drawn = without_empty_columns(drawn)
            if preset is None:
                whole.append(drawn)
            elif not drawn.empty:
                small.append(drawn)
    shown = {drawn.drawing.figure.id for drawn in small}
    found = [drawn for drawn in whole if not drawn.empty or drawn.drawing.figure.id not in shown] + small
    if not found and (ids or by):
        values = " and ".join(f"{name}={','.join(values)}" for name, values in by.items())
        raise UserError(f"there are no records for {', '.join(ids) or 'any figure'}{f' with {values}' if by else ''}")
    yield from found


def _having(
    groups: dict[str | None, list[Results]], ids: list[str], request: Request
) -> dict[str | None, list[Results]]:
    """The groups with something to draw; those of no preset also where figures are named, or where none has any."""
    by, protocol = request.by.get("dataset", []), request.wanted.protocol
    if protocol and protocol in groups:
        return {protocol: groups[protocol]}
    having = {
        preset: some
        for preset, some in groups.items()
        if any(results.records for results in some)
        and (not by or any(name in results.tasks for results in some for name in by))
    }
    if (ids and not request.by) or not having:
        return {None: groups[None]} | having
    return having


def plot(
    several: list[Results],
    ids: list[str],
    out: Path,
    formats: list[str],
    request: Request = AS_USUAL,
    error: str = "std",
    jobs: int = 1,
    page: Page = Page(),  # noqa: B008
) -> Iterator[tuple[Drawn, list[Path]]]:
    """Draws and saves figures; yields each with its files. A figure without records is drawn only if `ids` names it.

    With `jobs` > 1 several processes draw, started by `spawn`: a script that uses this needs a main guard.
    """
    everything = list(measured(several, ids, request, error))
    wanted = [drawn for drawn in everything if not drawn.empty or drawn.drawing.name in ids]
    if jobs == 1 or len(wanted) < MIN_FOR_PROCESSES:
        for drawn in everything:
            yield drawn, save(drawn, out, formats, page) if any(drawn is one for one in wanted) else []
        return
    pool = ProcessPoolExecutor(min(jobs, 4), mp_context=get_context("spawn"))
    try:
        with without_interrupts():
            started = {id(drawn): pool.submit(save, drawn, out, formats, page) for drawn in wanted}
        for drawn in everything:
            yield drawn, started[id(drawn)].result() if id(drawn) in started else []
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in processes started meanwhile: only the main process reacts to Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
