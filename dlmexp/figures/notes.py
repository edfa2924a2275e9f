"""What is written below a figure: repetitions, failures, stand-ins, settings."""

import re

import numpy as np

from dlmexp import catalogue
from dlmexp.console import counted
from dlmexp.figures.measure import Drawn
from dlmexp.figures.panels import Panel
from dlmexp.figures.style import ESTIMATORS, of_method
from dlmexp.plan.protocols import kind_of
from dlmexp.records.settings import PAPER, training_of

AIRLINE_EPOCHS = 20  # of the paper; protocols give stand-ins as many steps
MOST_LEFT_OUT = 3  # settings that are left out, named below the picture; `plot` prints all
_BETAS = re.compile(r"beta=(.*?)(?=, [\w.]+=|$)")  # a list of them has commas of its own
ERRORS = {"std": "standard deviation", "sem": "standard error"}


def _about_histograms(drawn: Drawn) -> list[str]:
    """What the histograms of gradient draws are made of, and their lines."""
    shown = {
        panel.metric: [one for one in several if one.draws is not None]
        for panel, several in drawn.run
        if panel.kind == "histogram" and any(one.draws is not None for one in several)
    }
    points = [one.points.iloc[0] for several in shown.values() for one in several]
    if not points:
        return []
    seeds = sorted({int(point["seed"]) for point in points})
    notes = [
        f"g: a draw of the gradient, on one split (seed {', '.join(map(str, seeds))}); G: the gradient by 10 000 bMC "
        "samples."
    ]
    if "condition_i" in shown:
        notes.append("Stochastic gradients converge if (i) is bounded from below, (ii) from above; grey at 1: g = G.")
    if any(np.isfinite(point["error_of_G"]) for point in points):
        ends = ", in (i) and (ii) the ends of the interval in which it leaves the exact gradient"
        notes.append(f"Dash-dotted: the error of G itself{ends if 'condition_i' in shown else ''}.")
    return notes


def _kind(panel: Panel) -> str:
    """The kind of data of a panel, as protocols name it."""
    file = catalogue.datasets().get(panel.dataset, {})
    return kind_of(file.get("task", ""), file.get("split", ""))


def _repetitions(drawn: Drawn) -> str:
    """`5`; `5 (regression, flights) or 20 (binary, counts)` where tasks differ; `3 to 5` where one has several."""
    found: dict[str, set[int]] = {}
    for panel, several in drawn.run:
        name = {"regression": "regression", "binary": "binary", "count": "counts"}.get(_kind(panel), panel.dataset)
        for one in several if panel.kind != "histogram" else ():
            found.setdefault(name, set()).update(int(count) for count in one.points["repetitions"] if count > 0)
    found = {name: counts for name, counts in found.items() if counts}
    counts = sorted(set[int]().union(*found.values()))
    if len(counts) == 1 or any(len(of) > 1 for of in found.values()):
        return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return " or ".join(f"{count} ({', '.join(name for name, of in found.items() if count in of)})" for count in counts)


def _about_rates(drawn: Drawn) -> list[str]:
    """The learning rates of curves, where estimators in one panel have different ones."""
    notes: dict[str, None] = {}
    for panel, several in drawn.run:
        rates: dict[float, dict[str, None]] = {}
        for one in several if panel.kind == "curve" else ():
            if one.setting is not None and not one.empty:
                training = training_of(one.setting, _kind(panel))
                rate = training.estimator_lr.get(one.line.estimator, training.lr)
                if training.minibatch and (one.n or 0) > training.minibatch:
                    rate = training.minibatch_lr
                rates.setdefault(rate, {})[ESTIMATORS.get(one.line.estimator, (one.line.estimator,))[0]] = None
        if len(rates) > 1:
            each = (f"{rate:g} with {' and '.join(names)}" for rate, names in sorted(rates.items()))
            notes[f"Learning rate: {', '.join(each)}."] = None
    return list(notes)


def _about_ends(drawn: Drawn) -> list[str]:
    """What it means that curves of one panel end at different iterations."""
    for panel, several in drawn.run:
        ends = {one.points["x"].max() for one in several if not one.empty}
        if panel.kind == "curve" and len(ends) > 1:
            return ["A curve ends where its last repetition stopped; one that stopped earlier keeps its last value."]
    return []


def _about_effects(drawn: Drawn) -> list[str]:
    """How to read bars and marks, and what else is in the differences between these methods."""
    notes = [
        "Change of test NLL, negative is better, on one scale per task; numbers in grey: the interval has 0 in it.",
        "DLM − ELBO (β selected against β = 1) = choosing β + objective, each the mean over the two orders of changing "
        "both, which the marks show.",
        "Change: what q trained unwhitened, or noise kept above 0.01, adds to DLM − ELBO (circle: to ELBO; diamond: to "
        "DLM).",
    ]
    shown = [
        (_kind(panel), one.setting)
        for panel, several in drawn.run
        for one in several
        if not one.empty and one.setting is not None
    ]
    if any(kind == "count" for kind, _ in shown):
        notes.append("Counts: trained with the exact log loss (in count-log: bMC-10).")
    started: dict[str, dict[str, None]] = {}
    for kind, setting in shown:
        for method, own in training_of(setting, kind).by_method.items():
            if own.initial or own.collapsed is False:
                started.setdefault(setting.protocol, {})[of_method(method).label] = None
    notes += [
        f"Under {protocol}, {', '.join(methods)} start from other values than ELBO, or without its closed form: "
        "that is part of the differences."
        for protocol, methods in started.items()
    ]
    return notes


def _named(panel: Panel) -> str:
    """The dataset of a panel, with the share of its rows where the panel is of one."""
    return panel.dataset if panel.n is None else f"{panel.dataset} at {panel.n.replace('%', ' %')}"


def notes_below(drawn: Drawn) -> list[str]:
    """The notes below a figure: what it shows, repetitions, failures, stand-ins, parameterisation of q, protocol."""
    points = [one for panel in drawn.series for one in panel if not one.empty]
    if not points:
        return []
    notes = [drawn.drawing.figure.caption]
    if drawn.drawing.only:
        notes.append(f"Only records with {', '.join(drawn.drawing.only)}.")
    both = drawn.run
    shown = [panel for panel, _ in both]
    kinds = {panel.kind for panel in shown}
    counts = sorted({int(c) for one in points for c in one.points["repetitions"] if c > 0})
    if kinds == {"histogram"}:
        pass
    elif counts == [1]:
        notes.append("A single repetition: no error bars.")
    elif counts:
        what = (
            "Mean and 95 % interval of paired differences"
            if kinds == {"effects"}
            else f"Mean and {ERRORS[drawn.error]}"
        )
        notes.append(
            f"{what} over {_repetitions(drawn)} repetitions"
            + (" (no bar where there is one)." if counts[0] == 1 else ".")
        )
    if any(panel.has_differences and any("minus_elbo" in one.points for one in several) for panel, several in both):
        notes.append("Below an NLL: minus the ELBO of the same repetition, with the 95 % interval of the mean.")
    notes += _about_histograms(drawn) if "histogram" in kinds else []
    notes += _about_rates(drawn)
    notes += _about_effects(drawn) if "effects" in kinds else []
    if any((one.points["failed"] > 0).any() for one in points):
        notes.append("k/m beside a point or line: k of m repetitions gave a finite result and are averaged.")
    if kinds != {"effects"} and any(all(one.empty for one in several) for several in drawn.by_entry.values()):
        notes.append("Grey in the legend: not run.")
    if any(panel.height for panel in shown):
        notes.append(
            "Learning curves may leave the frame where they start, and in spikes; triangle: one ends above it."
        )
    elif "curve" in kinds:
        notes.append("The first twentieth of a learning curve may leave the frame.")
    notes += _about_ends(drawn)
    by_epoch = {panel.dataset for panel in shown if panel.kind == "curve" and panel.x == "epochs"}
    notes += [
        f"{name}: as many steps as {of}'s {AIRLINE_EPOCHS} epochs."
        for name, of in drawn.drawing.stand_ins.items()
        if name in by_epoch
    ]
    if any(panel.kind == "sizes" or panel.metric == "coverage" for panel in shown):
        notes.append("Points of one n (or interval) are set side by side, to be told apart.")
    if any(panel.metric == "reliability" for panel in shown):
        notes.append("Reliability in bins of equal numbers of test rows.")
    if any(panel.kind == "reliability" for panel in shown):
        notes.append("Grey lines: perfect calibration.")
    if any(panel.metric.startswith("coverage_") for panel in shown):
        notes.append(
            "Grey at 95 %: what the interval promises; for counts it ends on whole numbers and so covers at least 95 %."
        )
    if "betas" in kinds:
        notes.append("Circles: the β with the lowest mean validation NLL. Far from it, lines may leave the frame.")
        flat = dict.fromkeys(
            one.line.entry
            for panel, several in both
            if panel.kind == "betas"
            for one in several
            if (one.points["x"].isna() & one.points["mean"].notna()).any()
        )
        notes.append("Grey: β = 1" + (f"; horizontal: {', '.join(flat)}, without a β." if flat else "."))
        if any((one.points["x"] == 0).any() for panel, several in both if panel.kind == "betas" for one in several):
            notes.append("The point apart on the left: β = 0.")
    notes += [
        f"{name} stands in for the paper's {catalogue.family(of)}."
        for name, of in drawn.drawing.stand_ins.items()
        if name in {panel.dataset for panel in shown}
    ]
    if absent := _absent(drawn):
        notes.append(f"Not run: {', '.join(absent)}.")
    if drawn.drawing.preset:
        notes.append(f"Preset {drawn.drawing.preset}: a first look with fewer seeds, sizes, betas and iterations.")
    if drawn.drawing.parameterisation != "whitened":
        notes.append(f"q {drawn.drawing.parameterisation}, as in the authors' released code.")
    notes += _about_settings(drawn)
    return notes


def _absent(drawn: Drawn) -> list[str]:
    """The panels that were not run; side by side with the protocols, where others have them."""
    names = drawn.drawing.protocols or ("",) * len(drawn.series)
    found: dict[str, dict[str, bool]] = {}  # panel -> protocol -> whether it was run
    for panel, several, name in zip(drawn.drawing.panels, drawn.series, names, strict=True):
        found.setdefault(_named(panel), {})[name] = any(not one.empty for one in several)
    words = []
    for panel, run in found.items():
        if not any(run.values()):
            words.append(panel)
        elif missing := [name for name, was in run.items() if not was]:
            words.append(f"{panel} under {' and '.join(missing)}")
    return words + [f"protocol {name}" for name in drawn.not_run]


def _about_settings(drawn: Drawn) -> list[str]:
    """The setting, and what is left out because of its setting."""
    notes, said = [], drawn.settings
    if not said and not drawn.drawing.protocols and any(one.setting for panel in drawn.series for one in panel):
        notes.append(f"Protocol: {PAPER}.")
    shown = {panel.dataset for panel, _ in drawn.run}
    if drawn.drawing.protocols:
        notes.append(f"Protocols side by side: {'; '.join(_side_by_side(drawn))}.")
    elif len(set(said.values())) == 1 and len(said) == len(shown):
        notes.append(f"Protocol: {next(iter(said.values()))}.")
    elif said:
        alike = {label: ", ".join(where for where in said if said[where] == label) for label in said.values()}
        notes.append(f"Protocol: {'; '.join(f'{several}: {label}' for label, several in alike.items())}.")
    # Other protocols, and what other experiments change in this one, have figures of their own; `plot` prints them all.
    surprising = [one for one in drawn.left_out if one.changed]
    notes += [
        f"Left out: {one.words}; dlmexp plot {drawn.drawing.figure.id} {one.options} draws them."
        for one in surprising[:MOST_LEFT_OUT]
    ]
    if (more := len(surprising) - MOST_LEFT_OUT) > 0:
        notes.append(f"Left out as well: cells of {counted(more, 'more setting')}.")
    return notes


def _side_by_side(drawn: Drawn) -> list[str]:
    """The setting of each column; where it is not the same in all panels, of each panel that is not as the others."""
    words = []
    for name in dict.fromkeys(drawn.drawing.protocols):
        said = {
            where: label for where, label in drawn.settings.items() if re.search(rf" \[{re.escape(name)}[],]", where)
        }
        columns = zip(drawn.drawing.panels, drawn.series, drawn.drawing.protocols, strict=True)
        own = [(panel.dataset, several) for panel, several, of in columns if of == name]
        shown = {dataset for dataset, several in own if not all(one.empty for one in several)}
        changed = {where.partition(" [")[0]: _changed(name, label) for where, label in said.items()}
        if len(set(changed.values())) == 1 and len(changed) == len(shown):
            words.append(f"{name} {next(iter(changed.values()))}".strip())
        else:
            listed = "; ".join(f"{where} {how}" for where, how in changed.items())
            words.append(f"{name} ({listed})" if listed else name)
    return words


def _changed(protocol: str, label: str) -> str:
    """What a setting changes in its protocol: `with M=10, beta=[10, 1, 0.1]`."""
    words = label.removeprefix(protocol).removeprefix(", ").strip()
    words = words if words.startswith("with ") or not words else f"with {words}"
    return _BETAS.sub(r"beta=[\1]", words)
