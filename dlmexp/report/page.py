"""The page itself: figures, claims, table and small print put into the template."""

import base64
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from PIL import Image

from dlmexp import __version__, catalogue
from dlmexp.claims import thresholds
from dlmexp.claims.changes import changes, claim_by_claim, part_changes, without
from dlmexp.claims.judge import NO_DATA, PAPER, STAND_IN, judge_protocols
from dlmexp.claims.render import evidence_words, repetitions_words, summaries
from dlmexp.claims.rules import Verdict
from dlmexp.config import PARAMETERISATIONS
from dlmexp.console import counted, duration
from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.measure import Drawn
from dlmexp.figures.plot import Request, comparable, measured
from dlmexp.figures.save import encode
from dlmexp.records.results import Results
from dlmexp.records.table import METRICS
from dlmexp.records.wanted import Wanted, usual_protocol
from dlmexp.report.rows import MOST_ROWS, rows
from dlmexp.report.summary import MADE_WITH, commands, failures, made_with, overview

HERE = Path(__file__).parent
LARGEST_SVG = 120_000  # bytes
COLOURS = 128


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    drawn: Drawn
    source: str  # data: address of the picture
    runs: list[str]  # what computes it
    plots: str  # what draws it


def pictures(results: Results) -> list[Picture]:
    """Every figure for which there is some record, as `dlmexp plot` would draw it; with several protocols, these side
    by side (and the other coordinates of q under the first)."""
    several = comparable([results])
    everything = measured([results], [], Request(compare_protocols=True)) if several else measured([results], [])
    drawings = [drawn for drawn in everything if not several or drawn.drawing.parameterisation == PARAMETERISATIONS[0]]
    if several:
        others = measured([results], [], Request(wanted=Wanted(usual_protocol(results.choices))))
        drawings += [drawn for drawn in others if drawn.drawing.parameterisation != PARAMETERISATIONS[0]]
    found = []
    for drawn in drawings:
        if drawn.empty:
            continue
        runs = dict.fromkeys(results.command(command) for command in drawn.commands)
        source = _source(drawn)
        words = " --compare-protocols" if drawn.drawing.protocols else ""
        plots = results.command(f"dlmexp plot {drawn.drawing.figure.id}{words}")
        found.append(Picture(drawn, source, list(runs), plots))
    return found


def _source(drawn: Drawn) -> str:
    """The picture as an address: SVG, or PNG with few colours where thousands of points make the SVG large."""
    with style.use():
        canvas = render(drawn)
        picture, kind = encode(canvas, "svg"), "svg+xml"
        if len(picture) > LARGEST_SVG:
            pixels, small = Image.open(BytesIO(encode(canvas, "png"))).convert("RGB"), BytesIO()
            pixels.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "png", optimize=True)
            if len(small.getvalue()) < len(picture):
                picture, kind = small.getvalue(), "png"
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()


def page(results: Results, folder: str) -> str:
    """The whole report as HTML. Everything that comes from records is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("dlmexp.report", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["duration"] = duration
    environment.filters["counted"] = counted
    environment.filters["family"] = catalogue.family
    table = rows(results)
    judged = judge_protocols(results)
    drawn = pictures(results)
    figures = {picture.drawn.drawing.name: picture.drawn.drawing.figure.id for picture in drawn}
    apply = any(found.dataset for under in judged.values() for one in under for found in one.judged)
    return environment.get_template("report.html.j2").render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        folder=folder, version=__version__, overview=overview(results), protocols=list(judged),
        claims=claim_by_claim(judged) if apply else [], verdicts=summaries(judged), changes=changes(judged),
        parts=part_changes(judged),
        rules=thresholds, without=without, evidence=evidence_words, repetitions=repetitions_words,
        PAPER=PAPER, STAND_IN=STAND_IN, NO_DATA=NO_DATA, NOT_RUN=Verdict.NOT_RUN,
        pictures=drawn, figures=figures, rows=table[:MOST_ROWS], settings=[*table[0].settings] if table else [],
        left_out=max(len(table) - MOST_ROWS, 0),
        metrics=[name for name in METRICS if any(row.metrics[name] for row in table)], labels=style.METRIC_LABELS,
        failures=failures(results), made_with=made_with(results), made_fields=MADE_WITH, commands=commands(results),
        here=results.command,
    )  # fmt: skip


def number(value: float | None, digits: int = 4) -> str:
    """A few digits, an en dash for nothing, words for what is not finite."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if value == value and abs(value) != float("inf") else "not finite"
