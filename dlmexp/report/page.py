"""The page itself: findings, verdicts, figures, table and small print put into the template."""

import base64
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from multiprocessing import get_context

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from PIL import Image

from dlmexp import __version__
from dlmexp.claims.judge import Column, judge
from dlmexp.claims.render import by_claim, changes, part_words, summaries
from dlmexp.claims.rules import Verdict
from dlmexp.console import counted, duration
from dlmexp.cores import cores
from dlmexp.figures import style
from dlmexp.figures.choose import own_datasets
from dlmexp.figures.panels import FIGURES
from dlmexp.figures.plot import Request, drawings
from dlmexp.labels import METRICS
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import changes_of, parse_where
from dlmexp.report.facts import MOST_ROWS, failures, findings, made, overview, rows

FIRST = (
    *("selection", "reg-log", "reg-sq", "class-log", "count-log", "airline", "reg-learning", "count-learning"),
    *("bias", "calibration", "anatomy", "inducing", "truth", "default"),
)  # figures on the page, the paper's figure 1 first; `dlmexp plot` draws the others
LINES = 10  # of verdicts at the top
CLEAR = (Verdict.HOLDS, Verdict.FAILS, Verdict.BETTER_WITHIN, Verdict.WORSE_WITHIN, Verdict.NO_DIFFERENCE)
COLOURS, DOTS_PER_INCH = 256, 130  # of the pictures


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    id: str
    title: str
    source: str  # data: address of the picture
    caption: str
    notes: list[str]
    commands: list[str]  # what computes it, and what draws it


def pictures(results: ResultsFolder, column: Column) -> list[Picture]:
    """Figures with any records under a column of verdicts: those of FIRST, and of own data; drawn by as many processes
    as there are cores."""
    own = [f"own-{name}" for name in own_datasets(results.table["dataset"].unique())]
    wanted = [(column, id) for id in (*(id for id in FIRST if id in FIGURES), *own)]
    _forked_with["results"] = results
    if cores() == 1 or sys.platform != "linux":
        found = [_picture(one) for one in wanted]
    else:
        with ProcessPoolExecutor(min(cores(), len(wanted)), get_context("fork")) as pool:
            found = list(pool.map(_picture, wanted))
    return [picture for picture in found if picture]


_forked_with: dict[str, ResultsFolder] = {}


def _picture(wanted: tuple[Column, str]) -> Picture | None:
    """A figure under a column of verdicts; None where nothing of it was run."""
    (column, id), results = wanted, _forked_with["results"]
    terms = [f"{name}={value}" for name, value in changes_of(column.changes).items()]
    request = Request(protocol=column.protocol, where=parse_where(terms, results.candidates))
    drawn = next(drawings(results, [id], request), None)
    if drawn is None or drawn.empty:
        return None
    words = " ".join([f"dlmexp plot {id} --protocol {column.protocol}", *(f"--where {term}" for term in terms)])
    commands = [*drawn.commands, results.command(words)]
    return Picture(id, drawn.figure.title, source(drawn.canvas), drawn.figure.caption, drawn.notes, commands)


def source(canvas: Canvas) -> str:
    """A matplotlib figure as the address of a PNG with few colours."""
    small = BytesIO()
    canvas.set_dpi(DOTS_PER_INCH)
    agg = FigureCanvasAgg(canvas)
    with style.use():
        agg.draw()  # once; `savefig` would draw twice
    image = Image.fromarray(np.asarray(agg.buffer_rgba())).convert("RGB")
    # Of the ways to choose few colours, this one keeps those of thin lines.
    image = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(small, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()


def page(results: ResultsFolder) -> str:
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
        version=__version__, overview=overview(results), columns=[column.label for column in judged.columns],
        findings={column.label: findings(results, column) for column in judged.columns},
        claims=claims if apply else [], shown=shown[:LINES], summaries=summaries(judged),
        changes=changes(judged), first_figure=FIRST[0], pictures=pictures(results, judged.columns[0]),
        rows=table.head(MOST_ROWS).to_dict("records"), left_out=max(len(table) - MOST_ROWS, 0),
        metrics={name: label for name, label in METRICS.items() if table.get(f"test_{name}_mean") is not None
                 and table[f"test_{name}_mean"].notna().any()},
        failures=failures(results), made=made(results).to_dict("records"), here=results.command,
    )  # fmt: skip


def number(value: float, digits: int = 4) -> str:
    """A few digits, an en dash for what there is none of, words for what is not finite."""
    return "–" if value != value else f"{value:.{digits}g}" if abs(value) != float("inf") else "not finite"
