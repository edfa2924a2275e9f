"""`dlmexp predict`: predictions of a trained model on the rows of a table."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dlmexp.cli.folder import add_results
from dlmexp.console import counted
from dlmexp.errors import UserError

DESCRIPTION = """
Predicts on the rows of a CSV or Parquet file with a model that 'dlmexp run' has trained and kept, and writes a table in
the units and labels of the data it was trained on. Regression: mean, std, lower_95, upper_95 (the ends of the central
95 % interval of a new observation). Binary data: label, and a probability for each of the two labels. Counts: mean,
lower_95, upper_95. Square-loss methods predict a mean only.

The columns may be in any order, and others beside them are ignored. A missing column, a text that training has not
seen, and a value that is missing or not finite end the command with exit code 2, naming row and column (rows are
counted from 1 after the header), and no file is written. Rows are read in pieces: files may be larger than memory.
"""

EXAMPLES = """
examples:
  dlmexp predict new.csv --out predictions.csv
  dlmexp predict new.parquet --where dataset=houses method=joint_log_dlm --out predictions.parquet
  dlmexp predict new.csv --seeds all > predictions.csv      the mixture of the models of all seeds
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "predict",
        help="predict on new rows with a trained model",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="rows to predict on: .csv with a header, or .parquet")
    add_results(parser)
    add_where(parser)
    parser.add_argument(
        "--out", default="-", metavar="FILE", help=".csv or .parquet; - (the default): CSV on standard output"
    )
    parser.add_argument("--model", metavar="FILE", help="a model file: .npz of 'dlmexp export', or of a results folder")
    parser.add_argument("--seeds", choices=["all"], help="all: the equally weighted mixture of the models of all seeds")
    parser.set_defaults(run=run)


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE",
        help="which model: method=, dataset=, n=, seed=, beta=, key=, or any other field of a cell (default: of all, "
        "the one with the best validation NLL)",
    )  # fmt: skip


def and_rest(where: list[str], words: list[str]) -> tuple[list[str], list[str]]:
    """Terms of --where, and all other words: those that follow its last term are not field=value."""
    count = next((i for i, term in enumerate(where) if "=" not in term), len(where))
    return where[:count], [*words, *where[count:]]


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from dlmexp.models.choose import chosen, described, load_model
    from dlmexp.models.file import load_file
    from dlmexp.models.tables import check_output, extra_columns, open_rows, written
    from dlmexp.records.results import load

    where, words = and_rest(args.where, [args.file] if args.file else [])
    if len(words) != 1:
        raise UserError("name one file to predict on: dlmexp predict FILE [--where FIELD=VALUE ...]")
    (file,) = words
    check_output(args.out)
    if args.out != "-" and Path(args.out).exists() and Path(args.out).resolve() == Path(file).resolve():
        raise UserError(f"--out {args.out} is the file to predict on: name another one")
    if args.model and (where or args.seeds):
        raise UserError("--model names the file of one model: leave --where and --seeds out")
    if args.model:
        models = [load_file(Path(args.model))]
        said = [f"{args.model} ({models[0].cell.describe()})"]
    else:
        results = load(args.results)
        rows = list(chosen(results, where, args.seeds == "all").itertuples())
        models = [load_model(results, row) for row in rows]
        said = [described(results, row, model) for row, model in zip(rows, models, strict=True)]
    schema = models[0].schema
    names, pieces = open_rows(Path(file), schema)
    for text in said:
        print(f"model {text}", file=sys.stderr)
    if extra := extra_columns(names, schema):
        shown = ", ".join(extra[:8]) + (", ..." if len(extra) > 8 else "")
        print(f"ignored: {counted(len(extra), 'column')} that the model does not use ({shown})", file=sys.stderr)

    from dlmexp.models.predictor import Predictor

    predictor, rows = Predictor(models), 0
    if not predictor.has_distribution:
        print("square loss predicts a mean only: there is no interval", file=sys.stderr)
    with written(args.out) as append, _progress() as show:
        for piece in pieces:
            append(predictor.predict(schema.encode(piece, rows + 1, file)))
            rows += piece.num_rows
            show(rows)
        if not rows:
            raise UserError(f"{file} has columns but no rows")
    print(f"{counted(rows, 'row')} predicted{'' if args.out == '-' else f' to {args.out}'}", file=sys.stderr)
    return 0


@contextmanager
def _progress() -> Iterator:
    """A function to call with the number of rows so far: a line that is rewritten on a terminal, a line now and then
    elsewhere."""
    from time import monotonic

    last, terminal = monotonic(), sys.stderr.isatty()

    def show(rows: int) -> None:
        nonlocal last
        if monotonic() - last > (0.2 if terminal else 10.0):
            last = monotonic()
            print(f"{rows} rows", end="\r" if terminal else "\n", file=sys.stderr, flush=True)

    yield show
