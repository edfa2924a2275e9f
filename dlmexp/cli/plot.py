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
from dlmexp.common.atomic import is_writable, path_inside
from dlmexp.common.console import counted, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.processes import map_in_processes

if TYPE_CHECKING:
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.experiment.records.settings import Where
    from dlmexp.presentation.figures.choose import Request
    from dlmexp.presentation.figures.plot import DrawnFigure

DESCRIPTION = """\
Draws figures from the results under --results. Each is a PNG, with its numbers as CSV and a text
as Markdown: the caption, setting, repetitions, what was not run and the command that computes
it. Without an ID: all figures with any results. Stand-ins for the paper's datasets are shown
under their own names. All lines of a panel have one setting: an unchanged protocol, or one with
the same changes. Lines of other settings are left out; a note counts them and has the command
that draws them. The figures 'predictions' and 'importance' are of one trained model: the one with
the best validation NLL, or the one that --by chooses. 'predictions' shows it on its test rows,
'importance' how much each column of your own table matters to it. The figures 'ranks', 'gains' and
'cost' compare methods over all datasets (see 'dlmexp rank'), 'claims' has the verdicts on the
paper's claims. These five are drawn only if they are named."""
# The figures of one trained model, with their titles.
MODEL_FIGURE_TITLES = {
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


class TermsAction(argparse.Action):
    """Sorts the words after an option into its terms `NAME=VALUE`, and ids of figures.

    argparse gives an option all words that follow it: after `--by dataset=pol reg-log`, `reg-log`
    is a figure to draw.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add the terms to the values of the option, and the ids to `more_ids`."""
        # The first word belongs to the option even without `=`: it is reported as a wrong term.
        first_word, *further_words = values
        terms = [first_word]
        ids = []
        for word in further_words:
            if "=" in word:
                terms.append(word)
            else:
                ids.append(word)
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *terms])
        namespace.more_ids = [*namespace.more_ids, *ids]


def _add_choosing_options(parser: Parser) -> None:
    """Add the options that choose among the results."""
    parser.set_defaults(more_ids=[])
    parser.add_argument(
        "--by",
        action=TermsAction,
        nargs="+",
        default=[],
        metavar="FIELD=VALUE",
        help="use only results with this value of dataset, method, n, seed, beta, ...; "
        "dataset=NAME may also name a stand-in or your own data",
    )
    protocols = parser.add_mutually_exclusive_group()
    protocols.add_argument(
        "--protocol", metavar="NAME", help="draw this protocol (default: paper, if it was run)"
    )
    protocols.add_argument(
        "--compare-protocols",
        action="store_true",
        help="draw all protocols that were run, side by side",
    )
    parser.add_argument(
        "--where",
        action=TermsAction,
        nargs="+",
        default=[],
        metavar="SETTING=VALUE",
        help="draw results made with another value than the protocol's, such as training.lr=0.01; "
        "for the figures 'predictions' and 'importance': choose the model, as in 'dlmexp predict'",
    )
    parser.add_argument(
        "--parameterisation",
        choices=["whitened", "unwhitened"],
        help="parameterisation of q for binary and count data (default: a file for each "
        "parameterisation that was run)",
    )
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="for the figures 'predictions' and 'importance': the folder that the run read its "
        "data from (default: $DLMEXP_DATA, else ./data)",
    )


def plot(args: argparse.Namespace) -> None:
    """Draw figures, or list them."""
    # Nearly all objects of this command live to its end: the garbage collector would find little,
    # and take a tenth of the time.
    gc.disable()
    from dlmexp.presentation.figures.panels import (
        LEADERBOARD_FIGURES,
        MODEL_FIGURES,
        VERDICTS_FIGURE,
    )
    from dlmexp.presentation.figures.plot import parse_formats

    args.ids = [*args.ids, *args.more_ids]
    formats = parse_formats(args.format)
    ids = set(args.ids)
    if not ids.isdisjoint(MODEL_FIGURES):
        _plot_model(args, formats)
    elif VERDICTS_FIGURE in ids:
        _plot_verdicts(args, formats)
    elif not ids.isdisjoint(LEADERBOARD_FIGURES):
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
    from dlmexp.presentation.figures.panels import MODEL_FIGURES, PREDICTIONS
    from dlmexp.presentation.figures.plot import save

    has_other_figures = not set(args.ids) <= set(MODEL_FIGURES)
    if has_other_figures or args.compare_protocols or args.list:
        raise UserError(
            f"the figures {' and '.join(MODEL_FIGURES)} are of one model: draw them without other "
            "figures, and without --compare-protocols and --list"
        )
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    out = _output_folder(args, results)
    option = "--where" if args.where else "--by"
    (chosen,) = choose_models(results, _terms_of_model(args), option=option)
    diagnosis = diagnose(results, chosen, args.data_root)
    model_sentence = f"Model {chosen.description}."
    for figure in dict.fromkeys(args.ids):  # without repeats
        # Modules of model figures have the same functions.
        module = predictions if figure == PREDICTIONS else importance
        picture = module.render(diagnosis)
        numbers = module.numbers(diagnosis)
        caption = module.text(diagnosis, model_sentence)
        files = save(out, f"{figure}-{chosen.row.dataset}", picture, numbers, caption, formats)
        print(files)
    print(f"  {model_sentence}")


def _plot_boards(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw figures of leaderboards; each is about all datasets."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES, draw_boards
    from dlmexp.presentation.figures.panels import LEADERBOARD_FIGURES
    from dlmexp.presentation.figures.plot import save
    from dlmexp.presentation.ranking.board import main_boards

    has_other_figures = not set(args.ids) <= set(LEADERBOARD_FIGURES)
    if args.where or _has_options_of_line_figures(args) or has_other_figures:
        raise UserError(
            f"the figures {', '.join(LEADERBOARD_FIGURES)} are over all datasets: draw them "
            "without other figures, and with no option but --protocol to choose by"
        )
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    out = _output_folder(args, results)
    boards = main_boards(results, args.protocol)
    for name in dict.fromkeys(args.ids):  # without repeats
        figure = BOARD_FIGURES[name]
        for drawn in draw_boards(figure, boards):
            files = save(out, drawn.name, drawn.picture, drawn.numbers, drawn.text, formats)
            print(files)
        if args.captions:
            print(f"  {figure.caption}")


def _plot_verdicts(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw the verdicts on the paper's claims by data set."""
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.presentation.claims.judge import judge
    from dlmexp.presentation.figures.panels import VERDICTS_FIGURE
    from dlmexp.presentation.figures.plot import save
    from dlmexp.presentation.figures.verdicts import CAPTION, draw_verdicts

    if len(args.ids) > 1 or _has_options_of_line_figures(args):
        raise UserError(
            f"the figure '{VERDICTS_FIGURE}' is over all datasets: draw it alone, and with no "
            "option but --protocol and --where to choose by"
        )
    results = ResultsFolder(args.results, pack_folders=args.pack_folders)
    out = _output_folder(args, results)
    judged = judge(results, protocol=args.protocol, where=args.where)
    for drawn in draw_verdicts(judged):
        files = save(out, drawn.name, drawn.picture, drawn.numbers, drawn.text, formats)
        print(files)
    if args.captions:
        print(f"  {CAPTION}")


def _has_options_of_line_figures(args: argparse.Namespace) -> bool:
    """Return whether an option was typed that figures over all datasets do not have.

    These options choose lines of figures of single datasets, or list figures.
    """
    return bool(args.by or args.parameterisation or args.compare_protocols or args.list)


def _terms_of_model(args: argparse.Namespace) -> list[str]:
    """Return the terms that choose the model of a figure of one model."""
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
    by = _values_to_filter_by(args)  # a wrong term is an error even without results
    if not Path(args.results).is_dir() and not args.pack_folders:
        return _figures_without_results()
    results, request = _results_and_request(args, by)
    return _figures_with_results(results, args.ids, request)


def _figures_without_results() -> Iterable[ListedFigure]:
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES
    from dlmexp.presentation.figures.panels import FIGURES, VERDICTS_FIGURE
    from dlmexp.presentation.figures.verdicts import TITLE as VERDICTS_TITLE

    for name, title in MODEL_FIGURE_TITLES.items():
        yield ListedFigure(name, NOT_RUN, title)
    yield ListedFigure(VERDICTS_FIGURE, NOT_RUN, VERDICTS_TITLE)
    for figure in BOARD_FIGURES.values():
        yield ListedFigure(figure.name, NOT_RUN, figure.title)
    for name in FIGURES:
        yield ListedFigure(name, NOT_RUN, FIGURES[name].title)


def _figures_with_results(
    results: "ResultsFolder", ids: list[str], request: "Request"
) -> Iterable[ListedFigure]:
    from dlmexp.presentation.figures.leaderboard import BOARD_FIGURES
    from dlmexp.presentation.figures.panels import VERDICTS_FIGURE
    from dlmexp.presentation.figures.plot import drawings
    from dlmexp.presentation.figures.verdicts import TITLE as VERDICTS_TITLE

    if not ids:
        models = counted(len(results.store.model_files()), "model")
        for name, title in MODEL_FIGURE_TITLES.items():
            yield ListedFigure(name, models, title)
        data_sets = counted(results.candidates["dataset"].nunique(), "dataset")
        yield ListedFigure(VERDICTS_FIGURE, data_sets, VERDICTS_TITLE)
        for figure in BOARD_FIGURES.values():
            yield ListedFigure(figure.name, data_sets, figure.title)
    for drawn in drawings(results, ids, request):
        yield ListedFigure(drawn.name, _completeness(drawn), drawn.figure.title)


def _completeness(drawn: "DrawnFigure") -> str:
    """Return how many lines of a figure have results, in words."""
    lines = 0
    lines_with_results = 0
    for panel in drawn.measured_panels:
        lines += len(panel.series)
        lines_with_results += sum(not series.points.empty for series in panel.series)
    if not lines_with_results:
        return NOT_RUN
    if not drawn.missing:
        return "complete"
    return f"{lines_with_results} of {counted(lines, 'line')}"


def _plot_figures(args: argparse.Namespace, formats: list[str]) -> None:
    """Draw figures with their numbers and captions, and print what was written."""
    from dlmexp.presentation.figures.plot import drawings, save

    results, request = _results_and_request(args, _values_to_filter_by(args))
    out = _output_folder(args, results)
    # The numbers of all figures take some seconds; a spinner shows that the command is at work.
    spinner = wide_console().status("computing the numbers of the figures")
    with nullcontext() if args.ids else spinner:
        figures = list(drawings(results, args.ids, request))
    with_results = [drawn for drawn in figures if drawn.panels_with_results]
    without_results = [drawn for drawn in figures if not drawn.panels_with_results]

    def save_figure(drawn: "DrawnFigure") -> str:
        return save(out, drawn.name, drawn.picture, drawn.csv, drawn.text, formats)

    saved_files = map_in_processes(save_figure, with_results)
    for drawn, files in zip(with_results, saved_files, strict=True):
        print(files)
        for note in _notes(drawn, args.captions):
            print(f"  {note}")
    _print_remark(args, results, with_results, without_results)


def _notes(drawn: "DrawnFigure", with_caption: bool) -> list[str]:
    """Return the notes on a figure, after its caption if that is wanted."""
    return [drawn.figure.caption, *drawn.notes] if with_caption else drawn.notes


def _print_remark(
    args: argparse.Namespace,
    results: "ResultsFolder",
    with_results: Sequence["DrawnFigure"],
    without_results: Sequence["DrawnFigure"],
) -> None:
    """Print a line on figures that have no results.

    Raises:
        UserError: No figure has results.
    """
    remark = ""
    if args.ids:
        remark = _remark_on_named_figures(without_results)
    elif with_results:
        remark = _remark_on_all_figures(results, with_results, without_results)
    if not with_results:
        by = " ".join(args.by)
        no_figure = f"no figure shows results of '{args.results}' {by}: try --by dataset=NAME"
        raise UserError(remark or no_figure)
    if remark:
        print(remark)


def _remark_on_named_figures(without_results: Sequence["DrawnFigure"]) -> str:
    """Return a line with those named figures that have no results, and commands that compute them.

    It is empty if all have results.
    """
    from dlmexp.presentation.figures.plot import no_results

    if not without_results:
        return ""
    commands: list[str] = []
    for drawn in without_results:
        commands += drawn.commands
    return no_results(_figure_ids(without_results), commands)


def _remark_on_all_figures(
    results: "ResultsFolder",
    with_results: Sequence["DrawnFigure"],
    without_results: Sequence["DrawnFigure"],
) -> str:
    """Return a line about how many figures have no results.

    It is empty if all have results. It is also empty if only a user's own data were drawn: the user
    did not mean to run the paper's figures.
    """
    has_only_own_data = all(_is_of_own_data(drawn) for drawn in with_results)
    if not without_results or has_only_own_data:
        return ""
    count = counted(len(_figure_ids(without_results)), "other figure")
    return f"no results yet for {count}: {results.command('dlmexp plot --list')}"


def _figure_ids(figures: Iterable["DrawnFigure"]) -> list[str]:
    """Return the ids of figures, each once.

    A figure has several files if it is drawn for each parameterisation of q.
    """
    return list(dict.fromkeys(drawn.figure.id for drawn in figures))


def _is_of_own_data(drawn: "DrawnFigure") -> bool:
    """Return whether a figure shows a user's own data, not those of the paper."""
    return drawn.figure.id.startswith("own-")


def _values_to_filter_by(args: argparse.Namespace) -> "Where":
    """Return the values of the option `--by`."""
    from dlmexp.experiment.records.settings import parse_terms
    from dlmexp.presentation.figures.choose import FILTER_COLUMNS

    return parse_terms("--by", args.by, FILTER_COLUMNS)


def _results_and_request(
    args: argparse.Namespace, by: "Where"
) -> tuple["ResultsFolder", "Request"]:
    """Return the results folder, and the options that choose which results are drawn."""
    from dlmexp.experiment.records.columns import columns_with, every_column
    from dlmexp.experiment.records.results import ResultsFolder
    from dlmexp.experiment.records.settings import parse_where
    from dlmexp.presentation.figures.choose import Request
    from dlmexp.presentation.figures.numbers import FIGURE_COLUMNS

    # Only the columns that figures need are read. Settings of `--where` may be in any column.
    columns = every_column if args.where else columns_with(FIGURE_COLUMNS, ("test", "validation"))
    results = ResultsFolder(args.results, columns, args.pack_folders)
    where = parse_where(args.where, results.candidates, results.changes)
    request = Request(
        by,
        protocol=args.protocol,
        where=where,
        parameterisation=args.parameterisation,
        compare_protocols=args.compare_protocols,
    )
    return results, request


def _output_folder(args: argparse.Namespace, results: "ResultsFolder") -> Path:
    """Return the folder for the figures; raise UserError if it can't be written to."""
    default = results.root / "figures"
    out = Path(args.out) if args.out else path_inside(results.root, default)
    if not is_writable(out):
        raise UserError(f"can't write to '{out}': choose another path with --out")
    return out
