"""`dlmexp test`: checks for authors of plugins."""

import argparse
from collections import Counter
from pathlib import Path

from dlmexp.cli.parser import Commands, add_command
from dlmexp.common.console import counted

DESCRIPTION = """\
Check a plugin of your own: what it registers, shapes and gradients on made-up rows, a tiny run for
each of its methods, its figures and claims on records. One line for each check; exit code 1 if one
has failed."""
SOME_FAILED = 1


def add_commands(commands: Commands) -> None:
    """Add `test`."""
    summary = "check a plugin of your own"
    parser = add_command(commands, "test", test, summary=summary, description=DESCRIPTION)
    parser.add_argument("module", metavar="MODULE", help="the plugin, as in plugins=[MODULE]")
    parser.add_argument(
        "--results",
        metavar="DIR",
        help="folder whose records figures and claims are tried on (default: results/paper)",
    )


def test(args: argparse.Namespace) -> int:
    """Check a plugin, and print a line for each check.

    Returns:
        The exit code: 1 if a check has failed.
    """
    from dlmexp.common.extensions import use_extensions

    with use_extensions(plugins=[args.module]):
        from dlmexp.plugin_checks import check_plugin

        outcomes: Counter[str] = Counter()
        results = Path(args.results) if args.results else None
        for check in check_plugin(args.module, results):
            print(check, flush=True)
            outcomes[check.outcome] += 1
    failed = outcomes["failed"]
    print(
        f"{counted(outcomes.total(), 'check')}: {outcomes['ok']} ok, {failed} failed, "
        f"{outcomes['skipped']} skipped"
    )
    return SOME_FAILED if failed else 0
