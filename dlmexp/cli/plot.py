"""`dlmexp plot`: the paper's figures, figures of users' own data, and one trained model."""

import argparse
import gc
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlmexp.cli.parser import (
    Commands,
    Parser,
    add_command,
    add_results_option,
    add_with_option,
)
from dlmexp.common.atomic import is_writable, within
from dlmexp.common.console import counted, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.processes import map_in_processes

if TYPE_CHECKING:
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.experiment.records.settings import Where
    from dlmexp.presentation.figures.choose import Request
    from dlmexp.presentation.figures.plot import Drawn

DESCRIPTION = """\
Draws figures from the results under --results, as PNG, with their numbers as CSV and what is to
be said about them as Markdown: the caption, setting, repetitions, what was not run and the
command that computes it. Without an ID: all figures with any results. Stand-ins for the paper's
datasets are shown under their own names. All lines of a panel are of one setting: a protocol as
it stands, or with the same changes; others are left out and counted, with the command that
draws them. The figure 'predictions' shows one trained model on its test rows, 'importance' how much
each column of your own table matters to it: the one with the best validation NLL, or the one that
--by chooses. 'ranks', 'gains' and 'cost' compare methods
over all datasets (see 'dlmexp rank'); they are drawn where they are named."""
TITLES = {
    "predictions": "One trained model on its test rows.",
    "importance": "How much each column of your own table matters to one trained model.",
}
NOT_RUN = "not run"


def add_commands(commands: Commands) -> None:
    """Add `plot`."""
    summary = "draw the paper's figures from your results"
    parser = add_command(commands, "plot", plot, summary=summary, description=DESCRIPTION)
    add_results_option(parser)
    add_with_option(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="figures to draw (--list shows them)")
    _add_output_options(parser)
    _add_choosing_options(parser)


def _add_output_options(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder for the figures (default: figures in the results folder)",
    )
    parser.add_argument(
        "--format",
        default="png",
        metavar="LIST",
        help="file formats: png, pdf, svg (default: png)",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the figures, and how much of each has results",
    )
    parser.add_argument("--captions", action="store_true", help="print the captions as well")


class Terms(argparse.Action):
    """Takes all words that follow: terms `NAME=VALUE`, and after them ids of figures."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add the terms to those of the option, and other words to `more_ids`."""
        first, *others = values
        terms = [first, *(word for word in others if "=" in word)]
        ids = [word for word in others if "=" not in word]
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *terms])
        namespace.more_ids = [*namespace.more_ids, *ids]


def _add_choosing_options(parser: Parser) -> None:
    """Add the options that choose among the results."""
    parser.set_defaults(more_ids=[])
    parser.add_argument(
        "--by",
        action=Terms,
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        help="dataset=NAME: draw this dataset, e.g. a stand-in or your own; method, n, seed, beta, "
        "...: use only results with this value",
    )
    protocols = parser.add_mutually_exclusive_group()
    protocols.add_argument(
        "--protocol", metavar="NAME", help="draw this protocol (default: paper, if it was run)"
    )
    protocols.add_argument(
        "--compare-protocols",
        action="store_true",
        help="draw all protocols that were run side by side",
    )
    parser.add_argument(
        "--where",
        action=Terms,
        nargs="+",
        default=[],
        metavar="SETTING=VALUE",
        help="draw results made with another value than the protocol's, such as training.lr=0.01; "
        "of the figure 'predictions': which model, as for 'dlmexp predict'",
    )
    parser.add_argument(
        "--parameterisation",
        choices=["whitened", "unwhitened"],
        help="parameterisation of q for binary and count data (default: a file for each that was "
        "run)",
    )
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="of the figure 'predictions': the folder that the run read its data from (default: "
        "$DLMEXP_DATA, else ./data)",
    )


def plot(args: argparse.Namespace) -> None:
    """Draw figures, or list them."""
    # What is made here is kept to the end: the garbage collector would only cost a tenth of the
    # time.
    gc.disable()
    from dlmexp.presentation.figures.panels import OF_BOARDS, OF_MODELS, VERDICTS
    from dlmexp.presentation.figures.plot import parse_formats

    args.ids = [*args.ids, *args.more_ids]
    formats = parse_formats(args.format)
    if set(args.ids) & set(OF_MODELS):
        _plot_model(args, formats)
    elif VERDICTS in args.ids:
        _plot_verdicts(args, formats)
    elif set(args.ids) & set(OF_BOARDS):
        _plot_boards(args, formats)
    elif args.list:
        _print_figures(_listed_figures(args))
    else:
        _plot_figures(args, formats)


def _plot_model(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw figures of one trained model on its test rows."""
    from dlmexp.experiment.models.choice import choose_models
    from dlmexp.experiment.models.diagnosis import diagnose
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.figures import importance, predictions
    from dlmexp.presentation.figures.panels import OF_MODELS, PREDICTIONS
    from dlmexp.presentation.figures.plot import save

    if not set(args.ids) <= set(OF_MODELS) or args.compare_protocols or args.list:
        raise UserError(
            f"the figures {' and '.join(OF_MODELS)} are of one model: draw them without others, "
            "and without --compare-protocols and --list"
        )
    results = ResultsFolder(args.results, others=args.others)
    out = _output_folder(args, results)
    option = "--where" if args.where else "--by"
    (chosen,) = choose_models(results, _terms_of_model(args), option=option)
    diagnosis = diagnose(results, chosen, args.data_root)
    model = f"Model {chosen.words}."
    for figure in dict.fromkeys(args.ids):
        kind = predictions if figure == PREDICTIONS else importance
        canvas = kind.render(diagnosis)
        table = kind.numbers(diagnosis)
        caption = kind.text(diagnosis, model)
        print(save(out, f"{figure}-{chosen.row.dataset}", canvas, table, caption, formats))
    print(f"  {model}")


def _plot_boards(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw figures of leaderboards, which are over all datasets."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES, draw_boards
    from dlmexp.presentation.figures.panels import OF_BOARDS
    from dlmexp.presentation.figures.plot import save
    from dlmexp.presentation.ranking.board import main_boards

    if args.where or _chooses_lines(args) or not set(args.ids) <= set(OF_BOARDS):
        raise UserError(
            f"the figures {', '.join(OF_BOARDS)} are over all datasets: draw them without others, "
            "and with no option but --protocol to choose by"
        )
    results = ResultsFolder(args.results, others=args.others)
    out = _output_folder(args, results)
    boards = main_boards(results, args.protocol)
    for name in dict.fromkeys(args.ids):
        figure = BOARD_FIGURES[name]
        for drawn in draw_boards(figure, boards):
            print(save(out, drawn.name, drawn.canvas, drawn.numbers, drawn.text, formats))
        if args.captions:
            print(f"  {figure.caption}")


def _plot_verdicts(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw the paper's claims by data set."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims.judge import judge
    from dlmexp.presentation.figures.plot import save
    from dlmexp.presentation.figures.verdicts import CAPTION, draw_verdicts

    if len(args.ids) > 1 or _chooses_lines(args):
        raise UserError(
            "the figure 'claims' is over all datasets: draw it alone, and with no option but "
            "--protocol and --where to choose by"
        )
    results = ResultsFolder(args.results, others=args.others)
    out = _output_folder(args, results)
    judged = judge(results, protocol=args.protocol, where=args.where)
    for drawn in draw_verdicts(judged):
        print(save(out, drawn.name, drawn.canvas, drawn.numbers, drawn.text, formats))
    if args.captions:
        print(f"  {CAPTION}")


def _chooses_lines(args: argparse.Namespace) -> bool:
    """Return whether an option was typed that figures over all datasets do not have."""
    return bool(args.by or args.parameterisation or args.compare_protocols or args.list)


def _terms_of_model(args: argparse.Namespace) -> list[str]:
    """Return the terms that choose the model of the figure `predictions`."""
    terms = [*args.by, *args.where]
    if args.protocol:
        terms.append(f"protocol={args.protocol}")
    if args.parameterisation:
        terms.append(f"parameterisation={args.parameterisation}")
    return terms


class ListedFigure(NamedTuple):
    """A line of `dlmexp plot --list`."""

    name: str
    state: str  # how much of it has results
    title: str


def _print_figures(figures: Iterable[ListedFigure]) -> None:
    for figure in figures:
        print(f"{figure.name:28} {figure.state:16} {figure.title}")


def _listed_figures(args: argparse.Namespace) -> Iterable[ListedFigure]:
    by = _parsed_by(args)
    if not Path(args.results).is_dir() and not args.others:
        return _figures_without_results()
    results, request = _results_and_request(args, by)
    return _figures_with_results(results, args.ids, request)


def _figures_without_results() -> Iterable[ListedFigure]:
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES
    from dlmexp.presentation.figures.panels import FIGURES, VERDICTS
    from dlmexp.presentation.figures.verdicts import TITLE

    for name, title in TITLES.items():
        yield ListedFigure(name, NOT_RUN, title)
    yield ListedFigure(VERDICTS, NOT_RUN, TITLE)
    for figure in BOARD_FIGURES.values():
        yield ListedFigure(figure.name, NOT_RUN, figure.title)
    for name in FIGURES:
        yield ListedFigure(name, NOT_RUN, FIGURES[name].title)


def _figures_with_results(
    results: "ResultsFolder", ids: list[str], request: "Request"
) -> Iterable[ListedFigure]:
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES
    from dlmexp.presentation.figures.panels import VERDICTS
    from dlmexp.presentation.figures.plot import drawings
    from dlmexp.presentation.figures.verdicts import TITLE

    if not ids:
        models = counted(len(results.store.keys_with_models()), "model")
        for name, title in TITLES.items():
            yield ListedFigure(name, models, title)
        data_sets = counted(results.candidates["dataset"].nunique(), "dataset")
        yield ListedFigure(VERDICTS, data_sets, TITLE)
        for figure in BOARD_FIGURES.values():
            yield ListedFigure(figure.name, data_sets, figure.title)
    for drawn in drawings(results, ids, request):
        yield ListedFigure(drawn.name, _completeness(drawn), drawn.figure.title)


def _completeness(drawn: "Drawn") -> str:
    """Return how many lines of a figure have results."""
    total = 0
    present = 0
    for panel in drawn.measured:
        total += len(panel.series)
        present += sum(not series.points.empty for series in panel.series)
    if not present:
        return NOT_RUN
    if not drawn.missing:
        return "complete"
    return f"{present} of {counted(total, 'line')}"


def _plot_figures(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw figures with their numbers and captions, and print what was written."""
    from dlmexp.presentation.figures.plot import drawings, save

    results, request = _results_and_request(args, _parsed_by(args))
    out = _output_folder(args, results)
    patience = wide_console().status("measuring what the figures show")
    with nullcontext() if args.ids else patience:
        figures = list(drawings(results, args.ids, request))
    with_results = [drawn for drawn in figures if drawn.run]
    without_results = [drawn for drawn in figures if not drawn.run]

    def saved(drawn: "Drawn") -> str:
        return save(out, drawn.name, drawn.canvas, drawn.csv, drawn.text, formats)

    lines = map_in_processes(saved, with_results)
    for drawn, files in zip(with_results, lines, strict=True):
        print(files)
        for note in _notes(drawn, args.captions):
            print(f"  {note}")
    remark = _remark_on_missing(args, results, with_results, without_results)
    if remark:
        print(remark)


def _notes(drawn: "Drawn", captions: bool) -> list[str]:
    return [drawn.figure.caption, *drawn.notes] if captions else drawn.notes


def _remark_on_missing(
    args: argparse.Namespace,
    results: "ResultsFolder",
    with_results: Sequence["Drawn"],
    without_results: Sequence["Drawn"],
) -> str:
    """Return the line on figures that have no results; empty if there is nothing to say.

    Raises:
        UserError: nothing was drawn.
    """
    from dlmexp.presentation.figures.plot import no_results

    names = list(dict.fromkeys(drawn.figure.id for drawn in without_results))
    if names and args.ids:
        commands: list[str] = []
        for drawn in without_results:
            commands += drawn.commands
        message = no_results(names, commands)
        if not with_results:
            raise UserError(message)
        return message
    if not with_results:
        choice = " ".join(args.by)
        raise UserError(
            f"no figure shows results of '{args.results}' {choice}: try --by dataset=NAME"
        )
    if names and not all(_is_of_own_data(drawn) for drawn in with_results):
        count = counted(len(names), "other figure")
        return f"no results yet for {count}: {results.command('dlmexp plot --list')}"
    return ""


def _is_of_own_data(drawn: "Drawn") -> bool:
    """Return whether a figure shows a user's own data.

    The figures of the paper need not be mentioned then.
    """
    return drawn.figure.id.startswith("own-")


def _parsed_by(args: argparse.Namespace) -> "Where":
    from dlmexp.experiment.records.settings import parse_terms
    from dlmexp.presentation.figures.choose import BY

    return parse_terms("--by", args.by, BY)


def _results_and_request(
    args: argparse.Namespace, by: "Where"
) -> tuple["ResultsFolder", "Request"]:
    """Return the results, with the columns that figures need, and which of them to draw."""
    from dlmexp.experiment.records.columns import columns_with, every_column
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.experiment.records.settings import parse_where
    from dlmexp.presentation.figures.choose import Request
    from dlmexp.presentation.figures.numbers import FACTS

    # `--where` can name any setting; without it fewer columns are read.
    columns = every_column if args.where else columns_with(FACTS, ("test", "validation"))
    results = ResultsFolder(args.results, columns, args.others)
    where = parse_where(args.where, results.candidates, results.changes)
    request = Request(by, args.protocol, where, args.parameterisation, args.compare_protocols)
    return results, request


def _output_folder(args: argparse.Namespace, results: "ResultsFolder") -> Path:
    usual = results.root / "figures"
    out = Path(args.out) if args.out else within(results.root, usual)
    if not is_writable(out):
        raise UserError(f"can't write to '{out}': choose another path with --out")
    return out
