"""`dlmexp claims`: what the paper says, held against your results."""

import argparse
import sys

from dlmexp.cli.folder import add_results

DESCRIPTION = """
Judges the 22 claims of the paper by the records under --results, under every protocol that was run: a table of claims
and protocols, then what a verdict depends on. At each size there is a paired t-test over repetitions, with Holm's
correction over the sizes. A claim holds on a dataset where it is supported at half of the sizes or more and nowhere
contradicted; it fails where it is contradicted at half or more; it is mixed where sizes or parts disagree, undecided
where the intervals are too wide to tell, and undecidable where the records lack what it needs. A difference counts only
if it is at least the margin; smaller ones are "better" or "worse within the margin" (docs/SPEC.md, section 8). Verdicts
on data that stands in for the paper's are labelled as such.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("claims", help="judge the paper's claims by your results", description=DESCRIPTION)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="claims to judge, such as 7 18 (default: all)")
    add_results(parser)
    parser.add_argument(
        "--protocol", metavar="NAME", help="judge under this protocol alone (default: all that were run)"
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="SETTING=VALUE",
        help="judge the records made with this value, such as training.lr=0.01, in columns of their own",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--details", action="store_true", help="also the numbers behind each verdict, and their commands")
    form.add_argument("--json", action="store_true", help="everything, for programs")
    form.add_argument("--markdown", action="store_true", help="tables and details, in Markdown")
    form.add_argument("--table", action="store_true", help="the table alone, in Markdown, for a README")
    form.add_argument("--counts", action="store_true", help="how many claims have which verdict, in Markdown")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dlmexp.claims import render
    from dlmexp.claims.claim import CLAIMS
    from dlmexp.claims.judge import judge
    from dlmexp.records.results import load

    numbers = [CLAIMS[text].number for text in args.numbers]
    judged = judge(load(args.results), numbers, args.protocol, args.where)
    if args.json:
        import json

        print(json.dumps(render.as_json(judged), indent=1, ensure_ascii=False, allow_nan=False))
    elif args.markdown:
        print(render.as_markdown(judged), end="")
    elif args.table:
        print(render.as_markdown_table(judged), end="")
    elif args.counts:
        print(render.as_markdown_counts(judged), end="")
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 500).print(render.as_table(judged))
        print("\n".join(render.below_table(judged, args.details)))
        if not args.details:
            print("\nThe numbers behind each verdict, and commands for what was not run: --details.")
    return 0
