"""`dlmexp claims`: what the paper says, held against your results."""

import argparse

DESCRIPTION = """
Judges the 19 claims of the paper by the records under --results: holds, fails, mixed or not run, with the figures
behind each verdict, a paired test over repetitions, and the command that made the records. Verdicts on data that
stands in for the paper's are labelled as such.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("claims", help="judge the paper's claims by your results", description=DESCRIPTION)
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="the folder with records (default: results)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, for programs")
    form.add_argument("--markdown", action="store_true", help="a table and details, for a README")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.claims.judge import judge
    from dlmexp.claims.render import as_json, as_markdown, as_text
    from dlmexp.records.results import load

    judgements = judge(load(args.results))
    if args.json:
        import json

        print(json.dumps(as_json(judgements), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(as_markdown(judgements) if args.markdown else as_text(judgements))
    return 0
