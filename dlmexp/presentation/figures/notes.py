"""Write the notes of a figure, which stand in its caption file and on the terminal.

They state its setting, repetitions and stand-ins, which results are missing, and which results of
other settings are left out.
"""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from dlmexp.common import catalogue
from dlmexp.experiment.records.plugin_versions import mixed_versions
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import Where
from dlmexp.presentation.figures.choose import Request
from dlmexp.presentation.figures.numbers import WHITENED, MeasuredPanel
from dlmexp.presentation.labels import metric_label

INTERVAL = "95 % interval of the mean (Student's t)"


def command(measured: MeasuredPanel, results: ResultsFolder) -> str:
    """Return the command that computes a panel under its protocol; '' if it is not known.

    No experiment of the catalogue computes a panel on a user's own data. The command of such a
    panel is the command that computed its rows.
    """
    panel = measured.panel
    if not panel.experiment or catalogue.is_user_dataset(panel.dataset):
        return results.command(measured.command) if measured.command else ""
    preset, protocol = catalogue.preset_and_protocol(measured.requested_protocol or "paper")
    words = [f"dlmexp run experiment={panel.experiment} dataset={panel.dataset}"]
    if protocol != "paper":
        words.append(f"protocol={protocol}")
    if preset:
        words.append(f"preset={preset}")
    return results.command(" ".join(words))


def settings(panels: Sequence[MeasuredPanel]) -> str:
    """Return a note on protocol, changes and parameterisation, with datasets where they differ."""
    datasets_by_setting: dict[str, list[str]] = {}
    for measured in panels:
        datasets = datasets_by_setting.setdefault(_setting(measured), [])
        if measured.panel.dataset not in datasets:
            datasets.append(measured.panel.dataset)
    # Settings name their datasets unless all settings have the same ones, such as a single setting.
    names_datasets = not _are_equal(datasets_by_setting.values())
    texts: list[str] = []
    for setting, datasets in datasets_by_setting.items():
        texts.append(f"{setting}: {', '.join(datasets)}" if names_datasets else setting)
    return f"Setting: {'; '.join(texts)}."


def _are_equal(lists: Iterable[list[str]]) -> bool:
    """Return whether all lists have the same items in the same order."""
    return len({tuple(items) for items in lists}) == 1


def _setting(measured: MeasuredPanel) -> str:
    """Return a panel's protocol with its changes, preset and parameterisation in words."""
    preset, _ = catalogue.preset_and_protocol(measured.protocol or "")
    text = f"protocol {measured.protocol}"
    if measured.changes:
        text += f" with {measured.changes}"
    if preset:
        text += f" (preset {preset}: fewer seeds, sizes, betas and iterations)"
    if measured.parameterisation != WHITENED:
        text += f", q {measured.parameterisation}"
    return text


def repetitions(panels: Sequence[MeasuredPanel]) -> list[str]:
    """Return a note on the numbers of repetitions and on intervals; [] if no panel has them."""
    tasks_by_count = _tasks_by_repetitions(panels)
    if not tasks_by_count:
        return []
    # Counts name their tasks unless all counts have the same ones, such as a single count.
    names_tasks = not _are_equal(tasks_by_count.values())
    texts: list[str] = []
    for count, tasks in tasks_by_count.items():
        texts.append(f"{count} ({', '.join(tasks)})" if names_tasks else count)
    # Where the usual number of repetitions differs by panel, titles of panels have it as `R = 5`.
    usual_counts = {usual_repetitions(measured) for measured in panels} - {0}
    name = "Repetitions (R)" if len(usual_counts) > 1 else "Repetitions"
    note = f"{name}: {', '.join(texts)}. {_interval_note(panels)}"
    return [note.strip()]


def _tasks_by_repetitions(panels: Iterable[MeasuredPanel]) -> dict[str, list[str]]:
    """Return the tasks with each number of repetitions: `5`, or `3 to 5` if points differ in it."""
    counts_by_task: dict[str, set[int]] = {}
    for measured in panels:
        counts_by_task.setdefault(measured.task, set()).update(_repetition_counts(measured))
    tasks_by_count: dict[str, list[str]] = {}
    for task, counts in counts_by_task.items():
        if counts:
            least = min(counts)
            most = max(counts)
            text = str(least) if least == most else f"{least} to {most}"
            tasks_by_count.setdefault(text, []).append(task)
    return tasks_by_count


def _repetition_counts(measured: MeasuredPanel) -> set[int]:
    """Return the numbers of repetitions of a panel's points; empty if it has no intervals."""
    counts: set[int] = set()
    if measured.panel.panel_kind.has_intervals:
        for series in measured.nonempty_series:
            repetitions = series.points["repetitions"]
            counts.update(map(int, repetitions[repetitions > 0]))
    return counts


def usual_repetitions(measured: MeasuredPanel) -> int:
    """Return the number of repetitions that most points of a panel have.

    The number is 0 for a panel without intervals or without points. Of several numbers that are
    equally frequent, the largest is returned.
    """
    if not measured.panel.panel_kind.has_intervals or not measured.nonempty_series:
        return 0
    counts = pd.concat([series.points["repetitions"] for series in measured.nonempty_series])
    counts = counts[counts > 0]
    return int(counts.mode().max()) if len(counts) else 0


def _interval_note(panels: Iterable[MeasuredPanel]) -> str:
    """Return a sentence that says what the intervals of a figure are; '' if it has none."""
    show_differences: list[bool] = []  # an item for each panel with intervals
    for measured in panels:
        panel = measured.panel
        kind = panel.panel_kind
        if kind.has_intervals and not panel.median:
            show_differences.append(kind.compares_methods or panel.kind == "forest")
    if not show_differences:
        return ""
    if all(show_differences):
        return f"Intervals: {INTERVAL} of paired differences."
    return f"Bands: {INTERVAL}."


def stand_ins(panels: Iterable[MeasuredPanel]) -> list[str]:
    """Return a note on the stand-ins among the datasets; [] if there are none."""
    texts: dict[str, None] = {}  # an ordered set
    for measured in panels:
        dataset = measured.panel.dataset
        paper_dataset = catalogue.stands_for(dataset)
        if paper_dataset:
            texts[f"{dataset} for the paper's {catalogue.family(paper_dataset)}"] = None
    if not texts:
        return []
    return [f"Stand-ins: {', '.join(texts)}."]


def filters(by: Where) -> list[str]:
    """Return a note on the values that the option `--by` chose; [] if it chose none.

    The note does not name datasets, as the name of the figure does.
    """
    texts: list[str] = []
    for name, values in by.items():
        if name != "dataset":
            texts.append(f"{name} = {' or '.join(values)}")
    if not texts:
        return []
    return [f"Only results with {', '.join(texts)}."]


def line_notes(panels: Iterable[MeasuredPanel], is_comparison: bool) -> list[str]:
    """Return the notes on lines with their dataset, each once.

    Args:
        panels: The panels of the figure.
        is_comparison: Whether protocols stand side by side, so that notes have to name them.
    """
    texts: dict[str, None] = {}  # an ordered set
    for measured in panels:
        name = _panel_name(measured, is_comparison)
        for note in measured.notes:
            texts[f"{name}: {note}."] = None
    return list(texts)


def plugin_versions(panels: Iterable[MeasuredPanel], results: ResultsFolder) -> list[str]:
    """Return a warning about each plugin of which several versions computed results.

    Only results on the datasets of the panels count.
    """
    datasets = {measured.panel.dataset for measured in panels}
    cells = results.candidates
    sentences = mixed_versions(cells[cells["dataset"].isin(datasets)])
    return [f"Warning: {sentence}." for sentence in sentences]


def _panel_name(measured: MeasuredPanel, is_comparison: bool) -> str:
    """Return the dataset of a panel, with its protocol if protocols stand side by side."""
    dataset = measured.panel.dataset
    return f"{dataset} [{measured.requested_protocol}]" if is_comparison else dataset


def missing_results(
    panels: Iterable[MeasuredPanel], results: ResultsFolder, is_comparison: bool
) -> list[str]:
    """Return a text for each panel, line and size without results, with the command to run."""
    texts: dict[str, None] = {}  # an ordered set
    for measured in panels:
        computing_command = command(measured, results)
        arrow = f" -> {computing_command}" if computing_command else ""
        name = _panel_name(measured, is_comparison)
        for missing in (*_missing_lines(measured), *_missing_sizes(measured)):
            texts[f"{name}{missing}{arrow}"] = None
    return list(texts)


def not_drawn(panels: Iterable[MeasuredPanel], is_comparison: bool) -> list[str]:
    """Return notes on panels that have rows but none with their metric, each note once."""
    texts: dict[str, None] = {}  # an ordered set
    for measured in panels:
        panel = measured.panel
        has_rows = measured.protocol is not None
        if has_rows and not measured.nonempty_series and panel.experiment:
            name = _panel_name(measured, is_comparison)
            metric = metric_label(panel.metric)
            texts[f"Not drawn: {name}, {metric} against {panel.x_name}: no result has it."] = None
    return list(texts)


def _missing_lines(measured: MeasuredPanel) -> list[str]:
    """Return what `missing_results` says after the name of a panel; [] if no line is missing.

    The only item is `: ELBO, FITC` for two lines that were not run, and '' if the whole panel was
    not run. Nothing is missing in a panel of a user's own data, whose lines are those that were
    run.
    """
    empty = [series.line for series in measured.series if series.points.empty]
    labels = [line.label for line in empty]
    if not labels or not measured.panel.experiment:
        return []
    if measured.nonempty_series:
        return [f": {', '.join(labels)}"]
    was_run = measured.protocol is not None
    # A panel that was run, but has no result with its metric, is reported by `not_drawn`.
    return [] if was_run else [""]


def _missing_sizes(measured: MeasuredPanel) -> list[str]:
    """Return `: FITC at n = 500` for each line that lacks sizes which another line has.

    A line across the panel belongs to no size (its x is NaN), so it lacks none.
    """
    panel = measured.panel
    if panel.kind not in ("sizes", "forest") or panel.x not in ("n", "M"):
        return []
    sizes_by_line: dict[str, set[int]] = {}
    for series in measured.nonempty_series:
        x = series.points["x"]
        is_line_across = x.isna().any()
        if not is_line_across:
            sizes_by_line[series.line.label] = set(map(int, x))
    all_sizes = set().union(*sizes_by_line.values())
    texts: list[str] = []
    for label, sizes in sizes_by_line.items():
        missing = sorted(all_sizes - sizes)
        if missing:
            texts.append(f": {label} at {panel.x} = {', '.join(map(str, missing))}")
    return texts


def left_out(
    figure_id: str,
    panels: Iterable[MeasuredPanel],
    results: ResultsFolder,
    request: Request,
    protocols: Sequence[str],
) -> Iterator[str]:
    """Yield notes on results of other settings, each with the command that draws them.

    Args:
        figure_id: The id of the figure.
        panels: Its panels with their numbers.
        results: The folder of the results.
        request: The options that the figure was drawn with.
        protocols: The protocols that are drawn side by side, and so are not left out.
    """
    plot_command = _plot_command(figure_id, request)
    options_of_drawn = {f"--protocol {name}" for name in protocols}
    for options, count in _results_by_options(panels).items():
        if options not in options_of_drawn:
            full_command = results.command(f"{plot_command} {options}".rstrip())
            yield f"Left out: {count} results of another setting -> {full_command}"


def _plot_command(figure_id: str, request: Request) -> str:
    """Return the command that draws a figure with a request, without protocol and setting."""
    words = ["dlmexp plot", figure_id]
    for name, values in request.by.items():
        words.append(f"--by {name}={','.join(values)}")
    if request.parameterisation:
        words.append(f"--parameterisation {request.parameterisation}")
    return " ".join(words)


def _results_by_options(panels: Iterable[MeasuredPanel]) -> dict[str, int]:
    """Return the number of results of each setting that is not drawn, by the options that draw it.

    Panels on the same dataset share most of their results. So each dataset is counted once, by the
    panel with the most results of the setting.
    """
    counts: dict[str, dict[str, int]] = {}  # by options, then by dataset
    for measured in panels:
        dataset = measured.panel.dataset
        for options, count in measured.other_settings:
            count_of_dataset = counts.setdefault(options, {})
            count_of_dataset[dataset] = max(count, count_of_dataset.get(dataset, 0))
    return {options: sum(by_dataset.values()) for options, by_dataset in counts.items()}
