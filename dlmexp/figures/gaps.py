"""Describes which results of a panel are missing, and the command that would compute them."""

from dataclasses import dataclass

from dlmexp import catalogue
from dlmexp.console import counted
from dlmexp.data.splits import known_sizes
from dlmexp.figures.panels import Panel
from dlmexp.figures.series import Series


@dataclass(frozen=True)
class Gap:
    """Missing results of a panel: `what` describes them, `command` computes them."""

    dataset: str
    what: str
    command: str


def missing_lines(series: list[Series]) -> list[str]:
    """Labels of the lines without records."""
    return [one.line.look.label for one in series if one.empty]


def gaps(panel: Panel, series: list[Series]) -> list[Gap]:
    """The lines, sizes and repetitions of a panel without records. A failed cell has one, so it is not missing."""
    command = panel.command or catalogue.run_command(panel.experiment, panel.dataset)
    if not panel.experiment and all(one.empty for one in series):
        return [Gap(panel.dataset, "nothing run", command)]
    if not panel.experiment:
        lacking = any("no record yet" in note for one in series for note in one.notes)
        return [Gap(panel.dataset, "not all that was asked for has a record yet", command)] if lacking else []
    if all(one.empty for one in series):
        return [Gap(panel.dataset, "nothing run", command)]
    absent = missing_lines(series)
    what = [f"no {', '.join(absent)}"] if absent else []
    drawn = [one for one in series if not one.empty]
    if panel.kind == "sizes":
        wanted = set() if panel.experiment == "default" else set(known_sizes(panel.dataset))
        wanted |= {int(x) for one in drawn for x in one.points["x"]}
        missing: dict[str, list[str]] = {}
        for one in drawn:
            if sizes := sorted(wanted - {int(x) for x in one.points["x"]}):
                missing.setdefault(", ".join(map(str, sizes)), []).append(one.line.look.label)
        what += [f"no n = {sizes} for {', '.join(labels)}" for sizes, labels in missing.items()]
    expected = catalogue.repetitions(panel.experiment)
    run = [int((one.points["repetitions"] + one.points["failed"]).min()) for one in drawn]
    if min(run) < expected:
        where = " at some points" if max(run) > min(run) else ""
        what.append(f"{min(run)} of {counted(expected, 'repetition')}{where}")
    return [Gap(panel.dataset, text, command) for text in what]


def caveats(series: list[Series]) -> list[str]:
    """Warnings about the points that are shown: failed cells, incomplete grids, records with other settings."""
    found = [note for one in series for note in one.notes]
    for one in series:
        if one.empty:
            continue
        label, points = one.line.look.label, one.points
        if (failures := int(points["failed"].max())) > 0:
            found.append(
                f"{label}: up to {counted(failures, 'repetition')} of a point failed or not finite, and not averaged"
            )
        if "failed_candidates" in points and (failed := int(points["failed_candidates"].sum())):
            found.append(f"{label}: {counted(failed, 'candidate cell')} failed; beta is selected among the others")
        if "fewest_candidates" in points and (points["fewest_candidates"] < points["most_candidates"]).any():
            found.append(f"{label}: beta is selected from an incomplete grid in some repetitions")
    return found
