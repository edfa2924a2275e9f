"""`dlmexp export`: a trained model as a GPyTorch model."""

import argparse

from dlmexp.cli.folder import add_results
from dlmexp.cli.predict import add_where, and_rest
from dlmexp.errors import UserError

DESCRIPTION = """
Writes a trained model as a GPyTorch ApproximateGP with its likelihood: model.pt with both state dicts, normalisation
and the names of the columns, and beside it model.py, a short Python file with the classes and a function that loads
them. It needs GPyTorch and not dlmexp, and predicts the same.
"""

EXAMPLES = """
examples:
  dlmexp export model.pt                                      the model with the best validation NLL
  dlmexp export 34682969d5fc model.pt                         the model of one cell, by the start of its key
  dlmexp export --where dataset=houses method=elbo model.pt
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "export",
        help="write a trained model as a GPyTorch model",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="dlmexp export [-h] [--results DIR] [KEY | --where FIELD=VALUE ...] FILE.pt|FILE.npz",
    )
    parser.add_argument("words", nargs="*", metavar="[KEY] FILE.pt", help="key of a cell, and the file to write")
    add_results(parser)
    add_where(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from dlmexp.models.choose import chosen, described, load_model
    from dlmexp.records.results import load

    where, words = and_rest(args.where, args.words)
    if not 1 <= len(words) <= 2:
        raise UserError("name the file to write: dlmexp export [KEY | --where FIELD=VALUE ...] model.pt")
    *key, out = words
    results = load(args.results)
    (row,) = chosen(results, [*where, *(f"key={one}" for one in key)]).itertuples()
    model = load_model(results, row)

    from dlmexp.models.export import export

    script = export(model, Path(out))
    print(f"model {described(results, row, model)}")
    if script.suffix == ".npz":
        print(f"{out}: dlmexp predict FILE --model {out}")
        return 0
    importable = script.stem.isidentifier() and script.parent == Path()
    load_it = (
        f"from {script.stem} import load"
        if importable
        else f"import runpy; load = runpy.run_path({str(script)!r})['load']"
    )
    print(f"{out} and {script}: {load_it}; model, likelihood, saved = load({out!r})")
    return 0
