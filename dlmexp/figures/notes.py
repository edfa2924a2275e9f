"""What is said beside a figure: setting, repetitions, stand-ins, what was not run and what is left out."""

from collections.abc import Iterable

from dlmexp import catalogue
from dlmexp.figures.drawn import Drawn, Request
from dlmexp.figures.numbers import WHITENED, Measured
from dlmexp.figures.stats import ERRORS
from dlmexp.records.results import Results


def commands(drawn: Drawn, results: Results) -> list[str]:
    """What computes each panel, under the protocol that is drawn; in the order of the panels, each once."""
    return list(dict.fromkeys(results.command(_command(one)) for one in drawn.cells if _command(one)))


def _command(one: Measured) -> str:
    panel = one.panel
    if not panel.experiment or catalogue.is_own(panel.dataset):
        return one.command
    preset, protocol = catalogue.of_preset(one.asked or "paper")
    words = [catalogue.run_command(panel.experiment, panel.dataset)]
    words += [f"protocol={protocol}"] if protocol != "paper" else []
    return " ".join(words + ([f"preset={preset}"] if preset else []))


def notes(drawn: Drawn, results: Results, request: Request) -> list[str]:
    """One line each, for the caption file and the terminal; nothing where nothing was run."""
    run = [one for one in drawn.cells if not one.empty]
    if not run:
        return []
    found = [f"Setting: {_settings(drawn, run)}."]
    if repetitions := _repetitions(run):
        found.append(f"Repetitions: {repetitions}. {_intervals(drawn, run)}".strip())
    shown = dict.fromkeys(one.panel.dataset for one in run)
    stand_ins = [
        f"{name} for the paper's {catalogue.family(of)}" for name in shown if (of := catalogue.stands_for(name))
    ]
    if stand_ins:
        found.append(f"Stand-ins: {', '.join(stand_ins)}.")
    only = [f"{name} = {' or '.join(values)}" for name, values in request.by.items() if name != "dataset"]
    if only:
        found.append(f"Only results with {', '.join(only)}.")
    found += _missing(drawn, results)
    found += dict.fromkeys(f"{_where(drawn, one)}: {note}." for one in run for note in one.notes)
    found += _left_out(drawn, results, request)
    if same := [f"{name} = {value}" for name, value in drawn.constants.items()]:
        found.append(f"In all rows of the CSV: {', '.join(same)}.")
    return found


def _where(drawn: Drawn, one: Measured) -> str:
    words = [one.asked if drawn.protocols else "", one.folder]
    beside = ", ".join(word for word in words if word)
    return f"{one.panel.dataset} [{beside}]" if beside else one.panel.dataset


def _settings(drawn: Drawn, run: list[Measured]) -> str:
    """`protocol paper`; with the datasets where they differ."""
    by_text: dict[str, dict[str, None]] = {}
    for one in run:
        preset, _ = catalogue.of_preset(one.protocol or "")
        text = f"protocol {one.protocol}" + (f" with {one.changes}" if one.changes else "")
        text += f" (preset {preset}: fewer seeds, sizes, betas and iterations)" if preset else ""
        text += f", q {one.parameterisation}" if one.parameterisation != WHITENED else ""
        by_text.setdefault(text, {})[one.panel.dataset] = None
    alike = len({tuple(where) for where in by_text.values()}) == 1
    return "; ".join(text if alike else f"{text}: {', '.join(where)}" for text, where in by_text.items())


def _repetitions(run: Iterable[Measured]) -> str:
    """`5`; `5 (regression), 20 (binary, count)` where tasks differ; `3 to 5` where points of a task do."""
    counts: dict[str, set[int]] = {}
    for one in run:
        if one.panel.kind != "histogram":
            points = (series.points for series in one.series if not series.empty)
            counts.setdefault(one.task, set()).update(int(n) for some in points for n in some["repetitions"] if n > 0)
    texts: dict[str, list[str]] = {}
    for task, of in counts.items():
        if of:
            texts.setdefault(f"{min(of)}" if len(of) == 1 else f"{min(of)} to {max(of)}", []).append(task)
    if len(texts) == 1:
        return next(iter(texts))
    return ", ".join(f"{text} ({', '.join(tasks)})" for text, tasks in texts.items())


def _intervals(drawn: Drawn, run: Iterable[Measured]) -> str:
    kinds = {one.panel.kind for one in run if not one.panel.median} - {"histogram"}
    if kinds == {"effects"}:
        return f"Intervals: {ERRORS['ci95']} of paired differences."
    return f"Bands: {ERRORS[drawn.error]}." if kinds else ""


def _missing(drawn: Drawn, results: Results) -> list[str]:
    """Panels, lines and sizes without results, with what computes them."""
    gaps: dict[tuple[str, str], None] = {}
    for one in drawn.cells:
        where = _where(drawn, one)
        command = results.command(_command(one)) if _command(one) else ""
        if one.empty:
            gaps[(where, command)] = None
            continue
        if absent := [series.line.label for series in one.series if series.empty]:
            gaps[(f"{where}: {', '.join(absent)}", command)] = None
        if one.panel.kind == "sizes":
            sizes = {int(x) for series in one.series if not series.empty for x in series.points["x"]}
            for series in one.series:
                if not series.empty and (lacking := sorted(sizes - {int(x) for x in series.points["x"]})):
                    text = f"{where}: {series.line.label} at n = {', '.join(map(str, lacking))}"
                    gaps[(text, command)] = None
    return [f"Not run: {what}" + (f" -> {command}" if command else "") for what, command in gaps]


def _left_out(drawn: Drawn, results: Results, request: Request) -> list[str]:
    """Results of other settings on these datasets, with the options that draw them."""
    by_options: dict[str, dict[str, int]] = {}
    for one in drawn.cells:
        for options, cells in one.others:
            own = by_options.setdefault(options, {})
            own[one.panel.dataset] = max(own.get(one.panel.dataset, 0), cells)
    beside = {f"--protocol {name}" for name in drawn.protocols}
    words = [f"--by {name}={','.join(values)}" for name, values in request.by.items()]
    words += [f"--parameterisation {request.parameterisation}"] if request.parameterisation else []
    plot = " ".join(["dlmexp plot", drawn.figure.id, *words])
    return [
        f"Left out: {sum(own.values())} results of another setting -> {results.command(f'{plot} {options}'.rstrip())}"
        for options, own in by_options.items()
        if options not in beside
    ]
