"""The command `dlmexp`: arguments, help texts and shell completion. A subcommand imports what it needs only when it
runs; completion loads nothing slow."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

from dlmexp import __version__, catalogue
from dlmexp.console import harmless_output, nobody_reads
from dlmexp.errors import UserError, nearest
from dlmexp.paths import extended

Commands = argparse._SubParsersAction  # what `add_subparsers` returns
MODULES = ("models", "results", "data")  # each adds its commands
COMPLETION = ("-sc", "--shell-completion")
BASH = """\
_dlmexp() { COMPREPLY=( $(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" "$1" -sc query 2>/dev/null) ); }
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _dlmexp dlmexp
"""
SCRIPTS = {
    "install=bash": BASH,
    "install=zsh": f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "install=fish": "complete -c dlmexp -a '(COMP_LINE=(commandline -cp) dlmexp -sc query 2>/dev/null)'\n",
}


class Parser(argparse.ArgumentParser):
    """Reports errors as UserError, so that they are printed like all others: in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        # A command refuses what it does not know itself, with its own options as suggestions. `run` takes all words:
        # its options may stand between overrides, of which argparse knows but the first ones.
        arguments, unknown = super().parse_known_args(args, namespace)
        if "overrides" in arguments:
            arguments.overrides, unknown = arguments.overrides + unknown, []
        if unknown and self.prog != "dlmexp":
            known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
            self.error(f"unknown argument '{unknown[0]}': {nearest(unknown[0], known)}")
        return arguments, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            self.error(f"{what} '{value}': {nearest(str(value), [str(choice) for choice in action.choices])}")


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = Parser(
        prog="dlmexp",
        description="Direct Loss Minimization for Sparse Gaussian Processes: run the paper's sweeps, draw its figures, "
        "check its claims.",
        epilog="Start with 'dlmexp run' (about a minute, on synthetic data), then 'dlmexp plot'.",
    )
    _shared_options(top)
    top.add_argument("--version", action="version", version=f"dlmexp {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in MODULES:
        import_module(f"dlmexp.cli.{name}").add_parser(commands)
    return top


def add_command(
    commands: Commands, run: Callable[[argparse.Namespace], int | None], help: str, **more: Any
) -> argparse.ArgumentParser:
    """Add the command that a function is: its name, its docstring as the description (with its own line breaks if it
    begins in its second line), and the option `--results`, unless it takes settings. It returns an exit code, or None
    for 0. Returns its parser."""
    text = run.__doc__ or ""
    formatter = argparse.RawDescriptionHelpFormatter if text.startswith("\n") else argparse.HelpFormatter
    parser = commands.add_parser(run.__name__, help=help, description=cleandoc(text), formatter_class=formatter, **more)
    if run.__name__ != "run":
        parser.add_argument("--results", default="results", metavar="DIR", help="results folder (default: results)")
    parser.set_defaults(run=run)
    return parser


def _shared_options(parser: argparse.ArgumentParser) -> None:
    """Options of all commands, which may stand anywhere among their arguments."""
    modules = "Python modules that add your own figures, claims, ..."
    parser.add_argument("--plugins", default="", metavar="MODULE[,MODULE]", help=modules)
    parser.add_argument("--config-dir", metavar="DIR", help="a conf folder of your own, with datasets, methods, ...")


@harmless_output()
def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. 0: done; 1: some cells failed; 2: error of the user; 3: budget= is
    spent; 128 + N: ended by signal N (130: Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if asked := [words[i + 1 :] for i, word in enumerate(words[:2]) if word in COMPLETION]:
            with extended():
                complete(asked[0])
                return 0
        shared = Parser(prog="dlmexp", add_help=False, allow_abbrev=False)
        _shared_options(shared)
        common, rest = shared.parse_known_args(words)
        with extended(common.config_dir, [name for name in common.plugins.split(",") if name]):
            args = parser().parse_args(rest)
            args.typed = words[words.index(args.command) + 1 :]
            return args.run(args) or 0
    except BrokenPipeError:
        nobody_reads()  # as after `dlmexp status | head`
        return 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it leaves: nothing more to interrupt
        said, code = "interrupted", 130
    except MemoryError:
        said, code = "not enough memory; what is finished is safe, the same command goes on from there", 2
    except UserError as error:
        said, code = str(error), 2
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        said, code = f"{where}{error.strerror}; fix that, or choose another file or folder", 2
    print(f"dlmexp: {said}", file=sys.stderr)
    return code


def complete(arguments: list[str]) -> None:
    """`install=bash` prints what a shell evaluates to get completions, `query` prints those of $COMP_LINE."""
    what, line = " ".join(arguments), os.environ.get("COMP_LINE")
    if what in SCRIPTS:
        print(SCRIPTS[what], end="")
    elif what == "query" and line is not None:
        print("\n".join(completions(line[: int(os.environ.get("COMP_POINT") or len(line))])))
    else:
        raise UserError(f"can't read '-sc {what}': give -sc {' | '.join(SCRIPTS)}")


def completions(line: str) -> list[str]:
    """What the last word of a line can become: a command, an option, a name, or a setting with its value."""
    words = line.split()
    last = words.pop() if words and not line[-1].isspace() else ""
    node, before = parser(), ""
    for word in words[1:]:
        commands: Any = next((a.choices for a in node._actions if isinstance(a, argparse._SubParsersAction)), {})
        node, before = commands.get(word, node), word
    if node.prog == "dlmexp run":
        return list(_settings(last))
    for action in node._actions:
        if before in action.option_strings and action.nargs != 0:
            return _starting(last, _values(node, action))
    options = [name for action in node._actions for name in action.option_strings]
    named = [value for action in node._actions if not action.option_strings for value in _values(node, action)]
    return _starting(last, options if last.startswith("-") else named or options)


def _values(node: argparse.ArgumentParser, action: argparse.Action) -> Iterable[str]:
    """The values of an argument that are known: its choices, or names of figures, datasets and protocols."""
    if action.choices is not None:
        return map(str, action.choices)
    if node.prog == "dlmexp plot" and action.dest == "ids":
        from dlmexp.figures.panels import FIGURES, PREDICTIONS

        return [*FIGURES.names(), PREDICTIONS]
    if action.dest == "protocol":
        return catalogue.names("protocol")
    return catalogue.names("dataset") if node.prog.startswith("dlmexp data ") and action.dest == "names" else []


def _settings(last: str) -> Iterator[str]:
    """Keys that start with `last`; behind `key=`, the names of a group or the choices of a setting."""
    from dlmexp.plan.overrides import groups, settings

    key, equals, value = last.partition("=")
    fields = settings(key)
    if not equals:
        dotted = "." in key
        for name in _starting(key, dict.fromkeys([*groups(), *fields])):
            if dotted or "." not in name:
                inner = name not in groups() and any(other.startswith(f"{name}.") for other in fields)
                yield f"{name}{'.' if inner else '='}"
        return
    start = max(value.rfind("["), value.rfind(",")) + 1  # of the last name in a list
    choices = fields[key].metadata.get("choices", ()) if key in fields else ()
    if key in fields and fields[key].type is bool:
        choices = ("true", "false")
    for name in _starting(value[start:], catalogue.names(key) if key in groups() else choices):
        yield f"{key}={value[:start]}{name}"


def _starting(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(word)]
