"""Notes on a figure: setting, repetitions, stand-ins, what was not run and what is left out."""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.experiment.records.plugin_versions import mixed_versions
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where
from dlmexp.presentation.figures.choose import Request
from dlmexp.presentation.figures.numbers import WHITENED, Measured
from dlmexp.presentation.labels import metric_label

INTERVAL = "95 % interval of the mean (Student's t)"


def command(measured: Measured, results: ResultsFolder) -> str:
    """Return the command that computes a panel under the drawn protocol; '' if it is not known."""
    panel = measured.panel
    if not panel.experiment or catalogue.is_own(panel.dataset):
        return results.command(measured.command) if measured.command else ""
    preset, protocol = catalogue.of_preset(measured.requested_protocol or "paper")
    words = [f"dlmexp run experiment={panel.experiment} dataset={panel.dataset}"]
    if protocol != "paper":
        words.append(f"protocol={protocol}")
    if preset:
        words.append(f"preset={preset}")
    return results.command(" ".join(words))


def settings(run: Sequence[Measured]) -> str:
    """Return a note on protocol, changes and parameterisation, by dataset where they differ."""
    pairs = [(_setting(measured), measured.panel.dataset) for measured in run]
    texts = "; ".join(_with_places(pairs, "{}: {}"))
    return f"Setting: {texts}."


def _setting(measured: Measured) -> str:
    preset, _ = catalogue.of_preset(measured.protocol or "")
    text = f"protocol {measured.protocol}"
    if measured.changes:
        text += f" with {measured.changes}"
    if preset:
        text += f" (preset {preset}: fewer seeds, sizes, betas and iterations)"
    if measured.parameterisation != WHITENED:
        text += f", q {measured.parameterisation}"
    return text


def _with_places(pairs: Iterable[tuple[str, str]], form: str) -> list[str]:
    """Return each text once, with its places unless all texts have the same.

    Args:
        pairs: Texts with a place of each.
        form: How a text and its places are written, such as '{} ({})'.
    """
    places_of: dict[str, list[str]] = {}
    for text, place in pairs:
        places = places_of.setdefault(text, [])
        if place not in places:
            places.append(place)
    distinct_places = set(map(tuple, places_of.values()))
    if len(distinct_places) == 1:
        return list(places_of)
    return [form.format(text, ", ".join(places)) for text, places in places_of.items()]


def repetitions(run: Sequence[Measured]) -> list[str]:
    """Return a note on the number of repetitions and on intervals, if anything has any."""
    counts = ", ".join(_with_places(_repetitions_by_task(run), "{} ({})"))
    if not counts:
        return []
    differ = len({usual_repetitions(measured) for measured in run} - {0}) > 1
    name = "Repetitions (R)" if differ else "Repetitions"  # titles have R where panels differ
    note = f"{name}: {counts}. {_intervals(run)}"
    return [note.strip()]


def _repetitions_by_task(run: Iterable[Measured]) -> Iterator[tuple[str, str]]:
    """Yield `5`, or `3 to 5` where points differ, with the task."""
    counts_of: dict[str, set[int]] = {}
    for measured in run:
        counts_of.setdefault(measured.task, set()).update(_repetition_counts(measured))
    for task, counts in counts_of.items():
        if counts:
            least = min(counts)
            most = max(counts)
            yield str(least) if least == most else f"{least} to {most}", task


def _repetition_counts(measured: Measured) -> set[int]:
    """Return the numbers of repetitions of a panel's points; none where it has no intervals."""
    counts: set[int] = set()
    if measured.panel.facts.has_intervals:
        for series in measured.filled:
            repetitions = series.points["repetitions"]
            counts.update(map(int, repetitions[repetitions > 0]))
    return counts


def usual_repetitions(measured: Measured) -> int:
    """Return the number of repetitions that most points of a panel have; 0 without intervals."""
    if not measured.panel.facts.has_intervals or not measured.filled:
        return 0
    counts = pd.concat([series.points["repetitions"] for series in measured.filled])
    counts = counts[counts > 0]
    return int(counts.mode().max()) if len(counts) else 0


def _intervals(run: Iterable[Measured]) -> str:
    """Return what the intervals of the figure are; '' where it has none."""
    panels = [measured.panel for measured in run]
    with_intervals = [panel for panel in panels if panel.facts.has_intervals and not panel.median]
    if not with_intervals:
        return ""
    if all(panel.facts.compares_methods or panel.kind == "forest" for panel in with_intervals):
        return f"Intervals: {INTERVAL} of paired differences."
    return f"Bands: {INTERVAL}."


def stand_ins(run: Iterable[Measured]) -> list[str]:
    """Return a note on the stand-ins among the datasets, if there are any."""
    texts: dict[str, None] = {}
    for measured in run:
        dataset = measured.panel.dataset
        paper_dataset = catalogue.stands_for(dataset)
        if paper_dataset:
            texts[f"{dataset} for the paper's {catalogue.family(paper_dataset)}"] = None
    if not texts:
        return []
    return [f"Stand-ins: {', '.join(texts)}."]


def choice(by: Where) -> list[str]:
    """Return a note on the values that `--by` chose; datasets are in the name of the figure."""
    texts = [f"{name} = {' or '.join(values)}" for name, values in by.items() if name != "dataset"]
    if not texts:
        return []
    return [f"Only results with {', '.join(texts)}."]


def of_lines(run: Iterable[Measured], is_comparison: bool) -> list[str]:
    """Return the notes of lines, with their dataset; each once."""
    texts: list[str] = []
    for measured in run:
        place = _place(measured, is_comparison)
        texts += [f"{place}: {note}." for note in measured.notes]
    return list(dict.fromkeys(texts))


def versions(run: Iterable[Measured], results: ResultsFolder) -> list[str]:
    """Return a note on each plugin of which several versions made results on these datasets."""
    datasets = {measured.panel.dataset for measured in run}
    cells = results.candidates
    sentences = mixed_versions(cells[cells["dataset"].isin(datasets)])
    return [f"Warning: {sentence}." for sentence in sentences]


def _place(measured: Measured, is_comparison: bool) -> str:
    """Return the dataset of a panel; side by side, also the protocol."""
    dataset = measured.panel.dataset
    return f"{dataset} [{measured.requested_protocol}]" if is_comparison else dataset


def gaps(panels: Iterable[Measured], results: ResultsFolder, is_comparison: bool) -> list[str]:
    """Return panels, lines and sizes without results, with the command for them; each once."""
    texts: list[str] = []
    for measured in panels:
        computes = command(measured, results)
        arrow = f" -> {computes}" if computes else ""
        place = _place(measured, is_comparison)
        missing = [*_missing_lines(measured), *_missing_sizes(measured)]
        texts += [f"{place}{gap}{arrow}" for gap in missing]
    return list(dict.fromkeys(texts))


def not_drawn(panels: Iterable[Measured], is_comparison: bool) -> list[str]:
    """Return why panels are not drawn though there are results; each once."""
    texts: list[str] = []
    for measured in panels:
        panel = measured.panel
        if measured.protocol is not None and not measured.filled and panel.experiment:
            place = _place(measured, is_comparison)
            name = metric_label(panel.metric)
            texts.append(f"Not drawn: {place}, {name} against {panel.against}: no result has it.")
    return list(dict.fromkeys(texts))


def _missing_lines(measured: Measured) -> list[str]:
    """Return one text at most: `: ELBO, FITC` for lines without points, '' for a whole panel.

    Panels of a user's own data have none.
    """
    labels = [series.line.label for series in measured.series if series.points.empty]
    if not labels or not measured.panel.experiment:
        return []
    if measured.filled:
        return [f": {', '.join(labels)}"]
    was_run = measured.protocol is not None  # but no result has what the panel shows
    return [] if was_run else [""]


def _missing_sizes(measured: Measured) -> list[str]:
    """Return `: FITC at n = 500` for each line that lacks sizes which another line has."""
    panel = measured.panel
    if panel.kind not in ("sizes", "forest") or panel.x not in ("n", "M"):
        return []
    sizes_of: dict[str, set[int]] = {}
    for series in measured.filled:
        x = series.points["x"]
        is_line_across = x.isna().any()
        if not is_line_across:
            sizes_of[series.line.label] = set(map(int, x))
    reached = set().union(*sizes_of.values())
    texts: list[str] = []
    for label, sizes in sizes_of.items():
        missing = sorted(reached - sizes)
        if missing:
            texts.append(f": {label} at {panel.x} = {', '.join(map(str, missing))}")
    return texts


def left_out(
    figure_id: str,
    panels: Iterable[Measured],
    results: ResultsFolder,
    request: Request,
    protocols: Sequence[str],
) -> Iterator[str]:
    """Yield notes on results of other settings, each with the command that draws them.

    Args:
        figure_id: The figure that the command names.
        panels: Its numbers.
        results: The folder that the command names.
        request: What the figure was drawn with.
        protocols: Protocols that are drawn side by side, and so are not left out.
    """
    plot = _plot_command(figure_id, request)
    drawn = {f"--protocol {name}" for name in protocols}
    for options, count in _results_by_options(panels).items():
        if options not in drawn:
            computes = results.command(f"{plot} {options}".rstrip())
            yield f"Left out: {count} results of another setting -> {computes}"


def _plot_command(figure_id: str, request: Request) -> str:
    words = ["dlmexp plot", figure_id]
    for name, values in request.by.items():
        words.append(f"--by {name}={','.join(values)}")
    if request.parameterisation:
        words.append(f"--parameterisation {request.parameterisation}")
    return " ".join(words)


def _results_by_options(panels: Iterable[Measured]) -> dict[str, int]:
    """Return the number of results of each other setting, by the options that draw them.

    Panels of one dataset share most of their results: only the panel with the most is counted.
    """
    others: list[tuple[str, str, int]] = []
    for measured in panels:
        dataset = measured.panel.dataset
        others += [(options, dataset, count) for options, count in measured.others]
    table = pd.DataFrame(others, columns=["options", "dataset", "count"])
    by_dataset = table.groupby(["options", "dataset"], sort=False)["count"].max()
    totals = by_dataset.groupby("options", sort=False).sum()
    return {str(options): int(count) for options, count in totals.items()}
