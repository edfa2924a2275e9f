"""`dlmexp predict` and `dlmexp export`: what trained models say on new rows, and the models as files to hand on."""

import argparse
import sys
from pathlib import Path

from dlmexp.atomic import check_output
from dlmexp.cli import Commands, add_command
from dlmexp.console import counted
from dlmexp.errors import UserError

WHERE = """which model: method=, dataset=, n=, seed=, beta=, key=, or any other field of a cell (default: of all, the
one with the best validation NLL)"""


def add_parser(commands: Commands) -> None:
    add = add_command(commands, predict, "predict on new rows with a trained model").add_argument
    add("words", nargs="*", metavar="FILE", help="rows to predict on: .csv with a header, or .parquet")
    add("--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=WHERE)
    add("--out", default="-", metavar="FILE", help=".csv or .parquet; - (the default): CSV on standard output")
    add("--model", metavar="FILE", help="a model file: .npz of 'dlmexp export', or of a results folder")
    add("--seeds", choices=["all"], help="all: the equally weighted mixture of the models of all seeds")
    add("--interval", type=float, default=0.95, metavar="SHARE", help="of new observations in it (default: 0.95)")
    usage = "dlmexp export [--results DIR] [KEY | --where FIELD=VALUE ...] FILE.npz"
    add = add_command(commands, export, "write a trained model as a file", usage=usage).add_argument
    add("words", nargs="*", metavar="[KEY] FILE", help="key of a cell, and the file to write")
    add("--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=WHERE)


def _terms_and_words(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Terms of --where, and all other words: those that follow its last term are not field=value."""
    count = next((i for i, term in enumerate(args.where) if "=" not in term), len(args.where))
    return args.where[:count], [*args.words, *args.where[count:]]


def predict(args: argparse.Namespace) -> int:
    """
    Predicts on the rows of a CSV or Parquet file with a model that 'dlmexp run'
    has trained and kept. Writes the columns of that file and beside them, in the
    units and labels of the training data:
      regression, counts   mean, std, lower_95, upper_95 (the ends of the central
                           95 % interval of a new observation; see --interval)
      binary data          label, and a probability for each of the two labels
    Square-loss methods predict a mean only.

    The columns may be in any order. A missing column, a text that training has
    not seen and a value that is infinite end the command with exit code 2, naming
    row and column (rows are counted from 1 after the header), and no file is
    written; so does a missing value, unless the model was trained with
    csv.missing=mean or level. Rows are read in pieces: files may be larger than
    memory.

    examples:
      dlmexp predict new.csv --out predictions.csv
      dlmexp predict new.csv --model houses.npz --interval 0.8
      dlmexp predict new.parquet --where dataset=houses method=elbo --out p.parquet
      dlmexp predict new.csv --seeds all > p.csv     the mixture over all seeds
    """
    from dlmexp.models.file import choose_models, load_file
    from dlmexp.models.predictor import Predictor, open_rows, predict_file
    from dlmexp.records.results import load

    where, words = _terms_and_words(args)
    if len(words) != 1:
        raise UserError("name one file to predict on: dlmexp predict FILE [--where FIELD=VALUE ...]")
    file = Path(words[0])
    if args.out != "-":
        check_output(Path(args.out), f"--out {args.out}", (".csv", ".parquet"))
        if Path(args.out).exists() and Path(args.out).resolve() == file.resolve():
            raise UserError(f"--out {args.out} is the file to predict on: name another one")
    if args.model and (where or args.seeds):
        raise UserError("--model names the file of one model: leave --where and --seeds out")
    if not 0 < args.interval < 1:
        raise UserError(f"--interval {args.interval:g}: give a share between 0 and 1, such as 0.8")
    if args.model:
        models = [load_file(Path(args.model))]
        said = [f"{args.model} ({models[0].cell.describe()})"]
    else:
        chosen = choose_models(load(args.results), where, args.seeds == "all")
        models, said = [each.model for each in chosen], [each.words for each in chosen]
    open_rows(file, models[0].schema)  # mistakes first
    for text in said:
        print(f"model {text}", file=sys.stderr)
    predictor = Predictor(models)
    if not predictor.has_distribution:
        print("square loss predicts a mean only: there is no interval", file=sys.stderr)
    count, gaps = predict_file(predictor, file, args.out, args.interval)
    if filled := ", ".join(f"{name} {number}" for name, number in gaps.items() if number):
        print(f"missing values, taken as in training: {filled}", file=sys.stderr)
    print(f"{counted(count, 'row')} predicted{'' if args.out == '-' else f' to {args.out}'}", file=sys.stderr)
    return 0


def export(args: argparse.Namespace) -> int:
    """
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
    from dlmexp.models.file import choose_models
    from dlmexp.records.results import load

    where, words = _terms_and_words(args)
    if not 1 <= len(words) <= 2:
        raise UserError("name the file to write: dlmexp export [KEY | --where FIELD=VALUE ...] model.npz")
    *key, out = words
    (chosen,) = choose_models(load(args.results), [*where, *(f"key={start}" for start in key)])

    from dlmexp.models.export import export as write_model

    script = write_model(chosen.model, Path(out))
    print(f"model {chosen.words}")
    if script.suffix == ".npz":
        print(f"{out}: dlmexp predict FILE --model {out}")
        return 0
    importable = script.stem.isidentifier() and script.parent == Path()
    by_path = f"import runpy; load = runpy.run_path({str(script)!r})['load']"
    load_it = f"from {script.stem} import load" if importable else by_path
    print(f"{out} and {script}: {load_it}; model, likelihood, saved = load({out!r})")
    return 0
