"""Results of presets are drawn under their own names, apart from all others: never as the paper's."""

from collections.abc import Sequence
from dataclasses import replace

from dlmexp import catalogue
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results


def presets(several: Sequence[Results]) -> list[str]:
    """The protocols at hand that are a preset's: `quick`, `released-quick`."""
    names = {one.protocol for results in several for one in results.asked}
    return sorted(name for name in names if name.rpartition("-")[2] in catalogue.presets())


def of_preset(results: Results, preset: str | None) -> Results:
    """What was asked for under one preset, or (None) under none."""
    small = presets([results])
    if preset is None and not small:
        return results
    asked = [one for one in results.asked if (one.protocol == preset if preset else one.protocol not in small)]
    keys = {key for one in asked for key in one.keys}
    return Results(results.store, (r for key, r in results.records.items() if key in keys), asked, results.label)


def renamed(drawing: Drawing, preset: str) -> Drawing:
    """The drawing under the preset's name. No file says what there should be, so nothing but panels can be missing."""
    protocol, _, name = preset.rpartition("-")
    words = f" preset={name}" + (f" protocol={protocol}" if protocol else "")
    panels = tuple(
        replace(p, command=(p.command or catalogue.run_command(p.experiment, p.dataset) + words), experiment="")
        for p in drawing.panels
    )
    return replace(drawing, name=f"{drawing.name}-{preset}", panels=panels, preset=preset)
