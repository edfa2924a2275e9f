"""The work of `dlmexp plot`: chooses which drawings to make, computes their numbers, draws and saves them."""

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from dlmexp.errors import UserError
from dlmexp.figures.compose import Drawn, measure
from dlmexp.figures.own import OWN, datasets_of, own_datasets, own_drawings, with_commands
from dlmexp.figures.panels import Figure
from dlmexp.figures.presets import of_preset, presets, renamed
from dlmexp.figures.registry import find
from dlmexp.figures.save import save
from dlmexp.figures.style import Page
from dlmexp.figures.variants import Drawing, drawings, on_datasets, parse_by, restrict
from dlmexp.records.results import Results

MIN_FOR_PROCESSES = 8  # with fewer figures, starting processes takes longer than drawing


def choose(
    several: list[Results], ids: list[str], by: dict[str, list[str]], parameterisation: str | None = None
) -> list[Drawing]:
    """The drawings of the figures `ids` (empty: all figures). Without `by` and `parameterisation`: all variants."""
    named = [name for name in ids if name.startswith(OWN)]
    wanted = find([name for name in ids if name not in named]) if ids != named or not ids else []
    present = {dataset: task for results in several for dataset, task in results.tasks.items()}
    chosen = own_drawings(several, datasets_of(named, several), parameterisation)
    if datasets := by.get("dataset"):
        ours = [name for name in datasets if name not in own_datasets(several)]
        alone = [] if ids else [name for name in datasets if name not in ours]
        found = own_drawings(several, alone, parameterisation)
        for figure in wanted if ids or ours else ():
            if (drawing := on_datasets(figure, datasets if ids else ours, present)) is not None:
                found.append(with_commands(drawing, several))
        if not found:
            raise UserError(f"--by dataset={','.join(datasets)}: {_no_panel(wanted, datasets)}")
        chosen += [_parameterised(drawing, parameterisation or "whitened") for drawing in found]
    elif parameterisation:
        plain = [drawings(figure, present, set()) for figure in wanted]
        chosen += [_parameterised(drawing, parameterisation) for variants in plain for drawing in variants]
    else:
        run = {how for results in several for how in results.parameterisations}
        chosen += [drawing for figure in wanted for drawing in drawings(figure, present, run)]
    if not ids and not by.get("dataset"):
        chosen += own_drawings(several, own_datasets(several), parameterisation)
    rest = [f"{name}={'+'.join(values)}" for name, values in by.items() if name != "dataset"]
    return [replace(drawing, name="-".join([drawing.name, *rest])) for drawing in chosen] if rest else chosen


def _no_panel(wanted: list[Figure], datasets: list[str]) -> str:
    names = sorted({panel.dataset for figure in wanted for panel in figure.panels})
    which = ", ".join(figure.id for figure in wanted) if len(wanted) < 4 else "any figure"
    return f"{' and '.join(datasets)} has no panel in {which}, which show {', '.join(names)}"


def _parameterised(drawing: Drawing, how: str) -> Drawing:
    if drawing.figure.id.startswith(OWN):
        return drawing
    name = drawing.name if how == "whitened" else f"{drawing.name}-{how}"
    return replace(drawing, name=name, parameterisation=how)


def datasets_not_drawn(several: list[Results], ids: list[str], shown: list[Drawing]) -> list[str]:
    """Datasets with records that are in none of the drawings, although one of the figures could show them."""
    wanted = find([name for name in ids if not name.startswith(OWN)])
    present = {dataset: task for results in several for dataset, task in results.tasks.items()}
    drawn = {panel.dataset for drawing in shown for panel in drawing.panels}
    return [
        name for name in present if name not in drawn and any(on_datasets(figure, [name], present) for figure in wanted)
    ]


def measured(
    several: list[Results], ids: list[str], by: dict[str, list[str]], parameterisation: str | None, error: str = "std"
) -> Iterator[Drawn]:
    """The chosen drawings with their numbers, one after another."""
    groups = {preset: [of_preset(results, preset) for results in several] for preset in (None, *presets(several))}
    named = by.get("dataset", [])
    having = {
        preset: some
        for preset, some in groups.items()
        if any(results.records for results in some)
        and (not named or any(name in results.tasks for results in some for name in named))
    }
    if ids and not by:
        having = {None: groups[None]} | having  # a figure that is named is drawn, with what is missing
    for preset, some in (having or {None: groups[None]}).items():
        kept = [restrict(results, by) if set(by) - {"dataset"} else results for results in some]
        for drawing in choose(some, ids, by, parameterisation):
            drawn = measure(renamed(drawing, preset) if preset else drawing, kept, error)
            if preset is None or not drawn.empty:
                yield drawn


def plot(
    several: list[Results],
    ids: list[str],
    out: Path,
    formats: list[str],
    by: list[str] | None = None,
    parameterisation: str | None = None,
    error: str = "std",
    jobs: int = 1,
    page: Page = Page(),  # noqa: B008
) -> Iterator[tuple[Drawn, list[Path]]]:
    """Draws and saves figures; yields each with its files. A figure without records is drawn only if `ids` names it.

    With `jobs` > 1 several processes draw, started by `spawn`: a script that uses this needs a main guard.
    """
    everything = list(measured(several, ids, parse_by(by or []), parameterisation, error))
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
