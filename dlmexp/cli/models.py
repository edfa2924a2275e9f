"""`dlmexp predict` applies a trained model to new rows; `dlmexp export` writes it as a file."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, Parser, add_command, add_results_option
from dlmexp.common.atomic import check_output
from dlmexp.common.console import counted
from dlmexp.common.errors import UserError

if TYPE_CHECKING:
    from dlmexp.experiment.models.file import TrainedCell
    from dlmexp.experiment.models.predict_file import PredictionCounts

STANDARD_OUTPUT = "-"
WHERE = """\
choose the model by method=, dataset=, n=, seed=, beta=, key=, or any other field of a cell;
of all that match, the one with the best validation NLL is taken"""
PREDICT = """
    Predicts on the rows of a CSV or Parquet file with a model that 'dlmexp run'
    has trained and kept. Writes the columns of that file, and these further ones
    in the units and labels of the training data:
      regression, counts   mean, std, lower_95, upper_95 (the ends of the central
                           95 % interval of a new observation; see --interval)
      binary data          label, and a probability for each of the two labels
    Square-loss methods predict a mean only. On request: quantiles, samples, and
    probabilities that a new observation is above a number.

    The columns may be in any order; a missing column ends the command with exit
    code 2, and no file is written. A row with a text that training has not seen,
    a value that is infinite, or a missing value (unless the model was trained with
    csv.missing=mean or level) has empty predictions and a 'reason'; the exit code
    is 1 then. --unseen base and --missing mean predict such rows from their other
    columns.
    Rows are read in pieces: files may be larger than memory.

    examples:
      dlmexp predict new.csv --out predictions.csv
      dlmexp predict new.csv --model houses.npz --interval 0.8
      dlmexp predict new.csv --quantiles 0.1,0.5,0.9 --above 100 --samples 20
      dlmexp predict new.parquet --where dataset=houses method=elbo --out p.parquet
      dlmexp predict new.csv --seeds all > p.csv     the mixture over all seeds
    """
EXPORT_USAGE = "dlmexp export [--results DIR] [KEY | --where FIELD=VALUE ...] FILE.npz"
EXPORT = """
    Writes a trained model as a file to hand on. FILE.npz is for 'dlmexp predict
    --model FILE.npz' in any environment. FILE.pt is a GPyTorch ApproximateGP with
    its likelihood, and beside it FILE.py, which loads it, encodes raw tables, and
    needs no dlmexp. Both hold what the columns of tables are.

    examples:
      dlmexp export houses.npz                    the model with the best
                                                  validation NLL
      dlmexp export 34682969d5fc model.pt         the model of one cell, by the
                                                  start of its key
      dlmexp export --where dataset=houses method=elbo model.pt
    """


def add_commands(commands: Commands) -> None:
    """Add `predict` and `export`."""
    _add_predict(commands)
    _add_export(commands)


def _add_predict(commands: Commands) -> None:
    parser = add_command(
        commands,
        "predict",
        predict,
        summary="predict on new rows with a trained model",
        description=PREDICT,
        lines_as_written=True,
    )
    add_results_option(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE",
        help="rows to predict on: .csv with a header, or .parquet",
    )
    _add_where_option(parser)
    parser.add_argument(
        "--out",
        default=STANDARD_OUTPUT,
        metavar="FILE",
        help=".csv or .parquet; - (the default): CSV on standard output",
    )
    parser.add_argument(
        "--model",
        metavar="FILE",
        help="a model file: .npz of 'dlmexp export', or of a results folder",
    )
    parser.add_argument(
        "--seeds",
        choices=["all"],
        help="all: the equally weighted mixture of the models of all seeds",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=0.95,
        metavar="SHARE",
        help="share of new observations that the interval contains (default: 0.95)",
    )
    parser.add_argument(
        "--quantiles",
        metavar="SHARES",
        default="",
        help="add these quantiles of a new observation, such as 0.1,0.5,0.9",
    )
    parser.add_argument(
        "--above",
        metavar="NUMBERS",
        default="",
        help="add the probability that a new observation is above each number, such as 100,200",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="add N independent draws of a new observation at every row",
    )
    parser.add_argument(
        "--unseen",
        choices=["error", "base"],
        default="error",
        help="a category that training did not have: no prediction (error, the default), or a "
        "prediction from the other columns (base)",
    )
    parser.add_argument(
        "--missing",
        choices=["refuse", "mean"],
        default="refuse",
        help="a missing value: no prediction (refuse, the default), or (mean) a prediction with a "
        "number at its mean, and a category as unseen",
    )


def _add_export(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        export,
        summary="write a trained model as a file",
        description=EXPORT,
        lines_as_written=True,
        usage=EXPORT_USAGE,
    )
    add_results_option(parser)
    parser.add_argument(
        "words", nargs="*", metavar="[KEY] FILE", help="key of a cell, and the file to write"
    )
    _add_where_option(parser)


def _add_where_option(parser: Parser) -> None:
    parser.add_argument(
        "--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=WHERE
    )


def _terms_and_words(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the terms of --where, and the files and keys.

    argparse gives `--where` every word that follows it. Of these, the first without `=` and all
    words after it are files and keys.
    """
    terms = []
    for word in args.where:
        if "=" not in word:
            break
        terms.append(word)
    words_after_terms = args.where[len(terms) :]
    return terms, [*args.words, *words_after_terms]


@dataclass(frozen=True)
class ChosenModels:
    """Models to predict with, and a description of each for the user."""

    models: Sequence["TrainedCell"]
    descriptions: Sequence[str]


def predict(args: argparse.Namespace) -> int:
    """Write predictions on the rows of a file; notes go to standard error.

    Returns:
        The exit code: 1 if a row has no prediction.
    """
    from dlmexp.experiment.models.predict_file import RowOptions, open_rows, predict_file
    from dlmexp.experiment.models.predictor import Outputs, Predictor

    terms, words = _terms_and_words(args)
    file = _file_to_predict_on(words)
    _check_predict_options(args, terms, file)
    chosen = _models_to_predict_with(args, terms)
    # Raises errors in the file's columns, here before any note is printed.
    open_rows(file, chosen.models[0].schema)
    predictor = Predictor(chosen.models)
    _print_notes_on_models(chosen.descriptions, predictor.has_distribution)
    outputs = Outputs(
        level=args.interval,
        quantiles=_numbers("--quantiles", args.quantiles),
        above=_numbers("--above", args.above),
        samples=args.samples,
    )
    row_options = RowOptions(args.unseen, fill=args.missing == "mean")
    counts = predict_file(predictor, file, args.out, outputs, row_options)
    _print_notes_on_rows(counts, args.out, training_filled=predictor.schema.fill)
    return 1 if counts.unpredicted else 0


def _numbers(option: str, typed: str) -> tuple[float, ...]:
    """Return the numbers of a list such as 0.1,0.9."""
    numbers = [number for number in typed.split(",") if number]
    try:
        return tuple(map(float, numbers))
    except ValueError:
        raise UserError(f"{option} {typed}: give numbers with commas between them") from None


def _file_to_predict_on(words: Sequence[str]) -> Path:
    if len(words) != 1:
        raise UserError(
            "name one file to predict on: dlmexp predict FILE [--where FIELD=VALUE ...]"
        )
    return Path(words[0])


def _check_predict_options(args: argparse.Namespace, terms: Sequence[str], file: Path) -> None:
    """Raise `UserError` for values that are not allowed, and options that exclude each other."""
    if args.out != STANDARD_OUTPUT:
        out = Path(args.out)
        check_output(out, f"--out {args.out}", (".csv", ".parquet"))
        if out.exists() and out.resolve() == file.resolve():
            raise UserError(f"--out {args.out} is the file to predict on: name another one")
    if args.model and (terms or args.seeds):
        raise UserError("--model names the file of one model: leave --where and --seeds out")
    if not 0 < args.interval < 1:
        raise UserError(f"--interval {args.interval:g}: give a share between 0 and 1, such as 0.8")


def _models_to_predict_with(args: argparse.Namespace, terms: Sequence[str]) -> ChosenModels:
    from dlmexp.experiment.models.choice import choose_models
    from dlmexp.experiment.models.file import load_file
    from dlmexp.experiment.records.results import ResultsFolder

    if args.model:
        model = load_file(Path(args.model))
        return ChosenModels([model], [f"{args.model} ({model.cell.describe()})"])
    chosen = choose_models(ResultsFolder(args.results), terms, args.seeds == "all")
    return ChosenModels(
        models=[choice.model for choice in chosen],
        descriptions=[choice.description for choice in chosen],
    )


def _print_notes_on_models(descriptions: Sequence[str], has_distribution: bool) -> None:
    for description in descriptions:
        _print_note(f"model {description}")
    if not has_distribution:
        _print_note("square loss predicts a mean only: there is no interval")


def _print_notes_on_rows(counts: "PredictionCounts", out: str, training_filled: bool) -> None:
    """Print how many rows have predictions, and how gaps and unseen categories were treated.

    Args:
        counts: The numbers of rows, gaps and unseen categories.
        out: What the user typed for the file of predictions.
        training_filled: Whether gaps in the training rows were filled as well.
    """
    filled = _counts_by_column(counts.gaps)
    if filled:
        treatment = "numbers at their mean, categories as unseen"
        if training_filled:
            treatment = "taken as in training"
        _print_note(f"missing values, {treatment}: {filled}")
    unseen = _counts_by_column(counts.unseen)
    if unseen:
        _print_note(f"without a known category, predicted from other columns: {unseen}")
    destination = "" if out == STANDARD_OUTPUT else f" to {out}"
    with_prediction = counted(counts.rows - counts.unpredicted, "row")
    _print_note(f"{with_prediction} predicted{destination}")
    if counts.unpredicted:
        without_prediction = counted(counts.unpredicted, "row")
        _print_note(
            f"{without_prediction} without a prediction, see the column 'reason'; "
            f"the first: {counts.first_problem}"
        )


def _counts_by_column(counts: Mapping[str, int]) -> str:
    """Return counts as `age 3, job 1`; columns whose count is 0 are left out."""
    parts = []
    for column, count in counts.items():
        if count:
            parts.append(f"{column} {count}")
    return ", ".join(parts)


def _print_note(note: str) -> None:
    """Print to standard error: predictions may be on standard output."""
    print(note, file=sys.stderr)


def export(args: argparse.Namespace) -> None:
    """Write a trained model as a file, and print how to use it."""
    from dlmexp.experiment.models.choice import choose_models
    from dlmexp.experiment.records.results import ResultsFolder

    terms, words = _terms_and_words(args)
    if not 1 <= len(words) <= 2:
        raise UserError(
            "name the file to write: dlmexp export [KEY | --where FIELD=VALUE ...] model.npz"
        )
    out = words[-1]
    if len(words) == 2:
        key_start = words[0]
        terms.append(f"key={key_start}")
    (chosen,) = choose_models(ResultsFolder(args.results), terms)

    from dlmexp.experiment.models.export import export as write_model

    script = write_model(chosen.model, Path(out))
    print(f"model {chosen.description}")
    print(_how_to_use(out, script))


def _how_to_use(out: str, script: Path) -> str:
    """Return the line that tells how to predict with an exported model.

    Args:
        out: The file that the user named: `.npz`, or `.pt` for GPyTorch.
        script: For GPyTorch, the Python file that was written beside `out`; otherwise `out` itself.
    """
    if script.suffix == ".npz":
        return f"{out}: dlmexp predict FILE --model {out}"
    is_importable = script.stem.isidentifier() and script.parent == Path()
    if is_importable:
        import_load = f"from {script.stem} import load"
    else:
        import_load = f"import runpy; load = runpy.run_path({str(script)!r})['load']"
    return f"{out} and {script}: {import_load}; model, likelihood, saved = load({out!r})"
