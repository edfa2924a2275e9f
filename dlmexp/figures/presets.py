"""Results of presets are drawn under their own names, apart from all others: never as the paper's."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from dlmexp import catalogue
from dlmexp.figures.variants import Drawing
from dlmexp.records.results import Results
from dlmexp.records.settings import protocol_words


def presets(several: Sequence[Results]) -> list[str]:
    """The protocols at hand that are a preset's: `quick`, `released-quick`."""
    names = {one.protocol for results in several for one in results.asked}
    return sorted(name for name in names if catalogue.of_preset(name)[0])


def groups(several: Sequence[Results], together: bool = False) -> dict[str | None, list[Results]]:
    """The results that are drawn apart, by the name that is added to figures: those of no preset (None), and of every
    protocol of a preset, or (`together`) of all protocols of a preset."""
    found: dict[str, list[str]] = {}
    for name in presets(several):
        found.setdefault(catalogue.of_preset(name)[0] if together else name, []).append(name)
    named = {names[0] if len(names) == 1 else preset: names for preset, names in found.items()}
    whole: dict[str | None, list[Results]] = {None: [_without_presets(results) for results in several]}
    return whole | {name: [_of_protocols(results, names) for results in several] for name, names in named.items()}


def _without_presets(results: Results) -> Results:
    small = presets([results])
    whole = {one.protocol for one in results.asked}.difference(small)
    return _of_protocols(results, whole) if small else results


def _of_protocols(results: Results, names: Collection[str]) -> Results:
    """What was asked for under some protocols."""
    asked = [one for one in results.asked if one.protocol in names]
    keys = {key for one in asked for key in one.keys}
    return Results(results.store, (r for key, r in results.records.items() if key in keys), asked, results.label)


def renamed(drawing: Drawing, name: str) -> Drawing:
    """The drawing under the preset's name. No file says what there should be, so nothing but panels can be missing."""
    panels = []
    for panel, protocol in zip(drawing.panels, drawing.protocols or (name,) * len(drawing.panels), strict=True):
        words = [catalogue.run_command(panel.experiment, panel.dataset), *protocol_words(protocol)]
        panels.append(replace(panel, command=panel.command or " ".join(words), experiment=""))
    return replace(drawing, name=f"{drawing.name}-{name}", panels=tuple(panels), preset=name)
