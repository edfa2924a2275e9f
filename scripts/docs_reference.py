"""Pages of the site that are made from the program itself: commands, settings, figures."""

import argparse
import ast
import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dlmexp.cli.parser import Commands, make_parser
from dlmexp.data import config as data_config
from dlmexp.experiment import config as run_config

TOP = Path(__file__).resolve().parent.parent
WIDTH = 100  # columns of the help texts
# By class: the prefix of its settings on the command line, and the introduction to its section.
SECTIONS = {
    "RunConfig": ("", "What `dlmexp run` takes, as `key=value`."),
    "TrainingConfig": (
        "training.KIND.",
        "How one kind of data is trained on. KIND is `regression`, `binary`, `count` or `large`; "
        "`training.lr=0.01` without a kind sets all four. `conf/protocol` has the values of each "
        "protocol, which replace these defaults.",
    ),
    "BetaConfig": ("beta.", "`beta=grid`, `beta=short`, `beta=0.1` and `beta=[0.1,1]` are short."),
    "AutoMConfig": ("auto_M.", "What `M=auto` chooses by."),
    "MethodConfig": ("method.NAME.", "`conf/method` has a file for each method."),
    "MethodTrainingConfig": (
        "training.KIND.by_method.NAME.",
        "What a protocol does differently for one method.",
    ),
    "CsvConfig": ("csv.", "A table of your own, `dataset=csv`."),
    "DatasetConfig": ("dataset.NAME.", "`conf/dataset` has a file for each dataset."),
}
PAPER = "results/paper/figures"
MORE = "results/more/figures"
VARIANTS = ("-annealed", "-released", "-protocols", "-unwhitened")
# What the page says for types with limits (dlmexp.common.limits), and for types of other sections;
# keys are regular expressions.
WORDS_FOR_TYPES = {
    "Evaluate": "end | epoch | number",
    "Device": "auto | cpu | cuda",
    "Folding": "number | holdout",
    "Variant": "joint | fixed",
    "Parameterisation": "whitened | unwhitened",
    "Components|Whole|Iterations|Seed": "whole number",
    "Rate|Ratio|Positive": "number > 0",
    "InitialValue": "{name: number}",
    "FolderName": "name",
    "AutoMConfig|BetaConfig|CsvConfig|DatasetConfig|MethodConfig|MethodTrainingConfig": "section",
}
ENTRY = re.compile(r"    (\w+): (.*)")


def commands_page() -> str:
    """Return the help texts of all commands as a page."""
    parser = make_parser()
    lines = [
        "# Commands",
        "",
        "These are the help texts: `dlmexp --help`, `dlmexp COMMAND --help`.",
        "",
    ]
    lines += _help_block("dlmexp", parser)
    for name, command in _subcommands(parser).items():
        lines += _help_block(f"dlmexp {name}", command)
        for word, subcommand in _subcommands(command).items():
            lines += _help_block(f"dlmexp {name} {word}", subcommand, level=3)
    return "\n".join(lines) + "\n"


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser by name; none where it has no commands."""
    for action in parser._actions:
        if isinstance(action, Commands):
            return action.choices
    return {}


def _help_block(title: str, parser: argparse.ArgumentParser, level: int = 2) -> list[str]:
    """Return the help text of a parser under a heading."""
    formatter = parser.formatter_class
    parser.formatter_class = partial(formatter, width=WIDTH)  # pyright: ignore[reportCallIssue]
    return [f"{'#' * level} {title}", "", "```text", parser.format_help().rstrip(), "```", ""]


def settings_page() -> str:
    """Return all settings of the schema with types, defaults and meanings as a page."""
    lines = [
        "# Settings",
        "",
        "All settings of `dlmexp run`, with the defaults of the schema. `dlmexp run ... --cfg job` "
        "prints what a command makes of them; the same names are keywords of `dlmexp.run`.",
        "",
    ]
    classes: dict[str, Fields] = {}
    for module in (run_config, data_config):
        classes |= dict(_classes(inspect.getsource(module)))
    for name, (prefix, introduction) in SECTIONS.items():
        lines += [f"## {prefix + '*' if prefix else 'The run'}", "", introduction, ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        for field, (kind, default, meaning) in classes[name].items():
            quoted_default = f"`{default}`" if default else ""
            lines.append(_table_row(f"`{prefix}{field}`", f"`{kind}`", quoted_default, meaning))
        lines.append("")
    return "\n".join(lines)


def _table_row(*cells: str) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


Fields = dict[str, tuple[str, str, str]]


def _classes(source: str) -> Iterator[tuple[str, Fields]]:
    """Yield the classes of a module with type, default and meaning of each field."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            documented = _attributes(ast.get_docstring(node) or "")
            fields: Fields = {}
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    name = item.target.id
                    meaning = documented.get(name) or _comment(lines, item)
                    fields[name] = (_type(item.annotation), _default(item.value), meaning)
            yield node.name, fields


def _attributes(docstring: str) -> dict[str, str]:
    """Return what the section `Attributes:` says of each field."""
    meanings: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Attributes:\n")[2].splitlines():
        entry = ENTRY.match(line)
        if entry:
            name = entry[1]
            meanings[name] = entry[2]
        elif name:  # a further line of the last entry
            meanings[name] += " " + line.strip()
    return meanings


def _comment(lines: list[str], item: ast.AnnAssign) -> str:
    """Return the comment in the lines above a field, or else the one at the end of its line."""
    above: list[str] = []
    number = item.lineno - 2
    while lines[number].strip().startswith("#"):
        above.insert(0, lines[number].strip("# "))
        number -= 1
    last_line = lines[(item.end_lineno or item.lineno) - 1]
    _, _, at_end = last_line.partition("  # ")
    return " ".join(above) or at_end


def _type(annotation: ast.expr) -> str:
    """Return a type as text: the values of a choice, or the name without its limits."""
    text = ast.unparse(annotation)
    for names, words in WORDS_FOR_TYPES.items():
        if re.search(rf"\b{names}\b", text):
            return f"[{words}, ...]" if "list[" in text else words
    choices = re.search(r"one_of\(([^)*]*)\)", text)
    if choices:
        values = choices[1].replace("'", "").replace(", ", " | ")
        return f"[{values}]" if "list" in text else values
    text = re.sub(r"Annotated\[(.+?), (?:Meta|Filled|one_of)[^\]]*\]", r"\1", text)
    plain = {"str": "text", "bool": "true | false", "float": "number", "int": "whole number"}
    plain["Any"] = "value"
    text = text.removesuffix(" | None")
    if "[" in text:
        return "{name: value}" if text.startswith("dict") else "[value, ...]"
    return plain.get(text, text)


def _default(value: ast.expr | None) -> str:
    """Return a default as people type it."""
    text = "" if value is None else ast.unparse(value)
    by_lambda = re.fullmatch(r"field\(default_factory=lambda: (.*)\)", text)
    if by_lambda:
        text = by_lambda[1]
    factories = {"dict": "{}", "list": "[]", "AutoMConfig": "", "BetaConfig": "", "CsvConfig": ""}
    by_name = re.fullmatch(r"field\(default_factory=(\w+)\)", text)
    if by_name:
        text = factories.get(by_name[1], by_name[1])
    plain = {"None": "null", "True": "true", "False": "false", "'???'": ""}
    return plain.get(text, text.replace("'", ""))


def figures_page() -> str:
    """Return all figures of the published results, with their captions, as a page."""
    lines = ["# All figures", "", "Drawn by `dlmexp plot` from the published records.", ""]
    for title, folder in (("Beyond the paper", MORE), ("The paper's experiments", PAPER)):
        lines += [f"## {title}", ""]
        for picture in sorted((TOP / folder).glob("*.png")):
            if not picture.stem.endswith(VARIANTS):
                lines += _figure(picture)
    return "\n".join(lines)


def _figure(picture: Path) -> list[str]:
    """Return the lines about a figure: its heading and caption, from the text file beside it."""
    text = picture.with_suffix(".md").read_text() + "\n\n"
    heading, caption = text.split("\n\n")[:2]
    path = picture.relative_to(TOP / "results").as_posix()
    return [
        f"### {heading.removeprefix('# ')}",
        "",
        f"![{caption}]({path}){{ loading=lazy }}",
        "",
        caption,
        "",
        f"`dlmexp plot {picture.stem} --results results/{path.partition('/')[0]}`",
        "",
    ]
