"""The page itself: findings, verdicts, figures, table and small print put into the template."""

import base64
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib.figure import Figure as Canvas
from PIL import Image

from dlmexp import __version__
from dlmexp.claims.judge import Column, judge
from dlmexp.claims.render import by_claim, changes, part_words, summaries
from dlmexp.claims.rules import Verdict
from dlmexp.console import counted, duration
from dlmexp.cores import cores
from dlmexp.figures import style
from dlmexp.figures.own import own_datasets
from dlmexp.figures.plot import Request, drawings
from dlmexp.figures.registry import FIGURES
from dlmexp.labels import METRICS
from dlmexp.records.results import Results
from dlmexp.records.table import changes_of, parse_where
from dlmexp.report.facts import MADE, MOST_ROWS, failures, findings, made, overview, rows

HERE = Path(__file__).parent
FIRST = (
    "selection", "reg-log", "reg-sq", "class-log", "class-err", "count-log", "airline", "airline-sampling-0.1",
    "reg-learning", "count-learning", "bias", "calibration", "anatomy", "default",
)  # fmt: skip
"""Figures on the page, the paper's figure 1 first; `dlmexp plot` draws the others."""
LINES = 10  # of verdicts at the top
CLEAR = (Verdict.HOLDS, Verdict.FAILS, Verdict.BETTER_WITHIN, Verdict.WORSE_WITHIN, Verdict.NO_DIFFERENCE)
COLOURS, DOTS_PER_INCH = 48, 110  # of the pictures
_shared: Results | None = None  # what processes that draw are forked with


@dataclass(frozen=True)
class Picture:
    """A figure on the page, under one column of verdicts."""

    id: str
    title: str
    column: str
    source: str  # data: address of the picture
    caption: str
    notes: list[str]
    commands: list[str]  # what computes it, and what draws it


def pictures(results: Results, columns: list[Column]) -> list[Picture]:
    """Figures with any records: those of FIRST under the first column of verdicts, the paper's figure 1 under all, own
    data; drawn by as many processes as there are cores."""
    own = [f"own-{name}" for name in own_datasets(results.table["dataset"].unique())]
    wanted = [(column, id) for column in columns for id in ([*FIRST, *own] if column is columns[0] else FIRST[:1])]
    if cores() == 1 or sys.platform != "linux":
        return [picture for one in wanted if (picture := _picture(results, *one))]
    # A child that is forked has the table already; one that is started anew would read it again.
    global _shared
    _shared = results
    with ProcessPoolExecutor(min(cores(), len(wanted)), get_context("fork")) as pool:
        found = list(pool.map(_forked, wanted))
    return [picture for picture in found if picture]


def _forked(wanted: tuple[Column, str]) -> Picture | None:
    assert _shared is not None
    return _picture(_shared, *wanted)


def _picture(results: Results, column: Column, id: str) -> Picture | None:
    """A figure under one column; None where nothing of it was run."""
    terms = [f"{name}={value}" for name, value in changes_of(column.changes).items()]
    request = Request(protocol=column.protocol, where=parse_where(terms, results.candidates))
    drawn = next(drawings([results], [id], request), None) if id in FIGURES or id.startswith("own-") else None
    if drawn is None or drawn.empty:
        return None
    words = " ".join([f"dlmexp plot {id} --protocol {column.protocol}", *(f"--where {term}" for term in terms)])
    commands = [*dict.fromkeys(drawn.commands), results.command(words)]
    return Picture(id, drawn.figure.title, column.label, source(drawn.canvas), drawn.caption, drawn.notes, commands)


def source(canvas: Canvas) -> str:
    """A matplotlib figure as the address of a PNG with few colours."""
    pixels, small = BytesIO(), BytesIO()
    with style.use():
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
    firsts = {number: next(iter(under.values())) for number, _, under, _ in claims}
    shown = sorted(firsts, key=lambda one: (rank.get(firsts[one].verdict, len(rank)), firsts[one].basis == "stand-in"))
    return environment.get_template("report.html.j2").render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        version=__version__, overview=overview(results), columns=[column.label for column in judged.columns],
        findings={column.label: findings(results, column) for column in judged.columns},
        claims=claims if apply else [], shown=shown[:LINES], summaries=summaries(judged),
        changes=changes(judged), first_figure=FIRST[0],
        pictures=pictures(results, judged.columns),
        rows=table.head(MOST_ROWS).to_dict("records"), left_out=max(len(table) - MOST_ROWS, 0),
        metrics={name: label for name, label in METRICS.items() if table.get(f"test_{name}_mean") is not None
                 and table[f"test_{name}_mean"].notna().any()},
        failures=failures(results), made=made(results).to_dict("records"), made_fields=MADE, here=results.command,
    )  # fmt: skip


def number(value: float, digits: int = 4) -> str:
    """A few digits, an en dash for what there is none of, words for what is not finite."""
    return "–" if value != value else f"{value:.{digits}g}" if abs(value) != float("inf") else "not finite"
