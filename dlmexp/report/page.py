"""The page itself: findings, verdicts, figures, table and small print put into the template."""

import base64
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from PIL import Image

from dlmexp import __version__
from dlmexp.claims.judge import judge
from dlmexp.claims.render import by_claim, changes, part_words, summaries
from dlmexp.claims.rules import Verdict
from dlmexp.console import counted, duration
from dlmexp.labels import METRICS
from dlmexp.records.results import Results
from dlmexp.report.facts import MADE, MOST_ROWS, failures, findings, made, overview, rows

HERE = Path(__file__).parent
FIRST_FIGURE = "selection"  # the paper's figure 1
OF_OTHERS = (
    FIRST_FIGURE,
    "reg-log",
    "class-log",
    "count-log",
)  # drawn under every protocol, all others under the first
LINES = 10  # of verdicts at the top
CLEAR = (Verdict.HOLDS, Verdict.FAILS, Verdict.BETTER_WITHIN, Verdict.WORSE_WITHIN, Verdict.NO_DIFFERENCE)
COLOURS, DOTS_PER_INCH = 48, 110  # of the pictures


@dataclass(frozen=True)
class Picture:
    """A figure on the page, under one column of verdicts."""

    id: str
    column: str
    source: str  # data: address of the picture
    caption: str
    notes: list[str]
    commands: list[str]  # what computes it, and what draws it


def pictures(results: Results, columns: dict[str, str]) -> list[Picture]:
    """Figures with any records: all under the first protocol, the main ones under the others (label -> protocol)."""
    from dlmexp.figures.plot import draw
    from dlmexp.figures.registry import FIGURES

    found = []
    for column, protocol in columns.items():
        for id in FIGURES.names() if column == next(iter(columns)) else OF_OTHERS:
            drawn = draw(results, id, protocol=protocol)
            if not drawn.empty:
                plot = results.command(f"dlmexp plot {id} --protocol {protocol}")
                commands = [*map(results.command, dict.fromkeys(drawn.commands)), plot]
                found.append(Picture(id, column, source(drawn.canvas), drawn.caption, drawn.notes, commands))
    return sorted(found, key=lambda picture: picture.id != FIRST_FIGURE)


def source(canvas) -> str:
    """A matplotlib figure as the address of a PNG with few colours."""
    pixels, small = BytesIO(), BytesIO()
    canvas.savefig(pixels, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    image = Image.open(pixels).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(small, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()


def page(results: Results) -> str:
    """The whole report as HTML. Everything that comes from records is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("dlmexp.report", "."), autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"number": number, "duration": duration, "counted": counted, "part": part_words}
    judged, table = judge(results), rows(results)
    claims = list(by_claim(judged))
    rank = {verdict: position for position, verdict in enumerate(CLEAR)}
    apply = any(row.records for _, _, under, _ in claims for row in under.values())
    shown = sorted(claims, key=lambda one: rank.get(next(iter(one[2].values())).verdict, len(rank)))[:LINES]
    return environment.get_template("report.html.j2").render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        version=__version__, overview=overview(results), columns=[column.label for column in judged.columns],
        findings={column.label: findings(results, column) for column in judged.columns},
        claims=claims if apply else [], shown=[one[0] for one in shown], summaries=summaries(judged),
        changes=changes(judged), first_figure=FIRST_FIGURE,
        pictures=pictures(results, {column.label: column.protocol for column in judged.columns}),
        rows=table.head(MOST_ROWS).to_dict("records"), left_out=max(len(table) - MOST_ROWS, 0),
        metrics={name: label for name, label in METRICS.items() if table.get(f"test_{name}_mean") is not None
                 and table[f"test_{name}_mean"].notna().any()},
        failures=failures(results), made=made(results).to_dict("records"), made_fields=MADE, here=results.command,
    )  # fmt: skip


def number(value: float, digits: int = 4) -> str:
    """A few digits, an en dash for what there is none of, words for what is not finite."""
    return "–" if value != value else f"{value:.{digits}g}" if abs(value) != float("inf") else "not finite"
