"""A hook of MkDocs: which files of the repository make the site, each under its path in the
repository.

So CONTRIBUTING.md is a page of the site without a copy in docs/, and a link from one page to
another, to a picture or to a script is the same link on both. A link to a file that is not among
these fails the build. The site has a home of its own, and pages that `docs_reference` makes.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))  # MkDocs loads this file by its path

from scripts.docs_reference import commands_page, figures_page, settings_page  # noqa: E402

HOME = "scripts/site_home.md"
README = TOP / "README.md"
MADE = {
    "docs/commands.md": commands_page,
    "docs/settings.md": settings_page,
    "results/figures.md": figures_page,
}
RESULTS = (
    "results/paper/README.md",
    "results/paper/DETAILS.md",
    "results/fair/README.md",
    "results/more/README.md",
)
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "data/README.md", *RESULTS)
FOLDERS = ("docs", "results/paper/figures", "results/fair/figures", "results/more/figures")
LINKED = (
    "CITATION.cff",
    "LICENSE",
    "examples/dlm.py",
    "examples/own-data.ipynb",
    "scripts/example_mlls.py",
    "dlmexp/common/reading/__init__.py",
)
SUFFIXES = (".md", ".png", ".svg", ".css")
CODE = re.compile(r"`[^`\n]+`")
ITEM = re.compile(r"(- |1\. )")


def home_page() -> str:
    """Return the home of the site, with the answer of the README."""
    answer = re.search(r"^\*Should you use DLM.*?\*$", README.read_text(), re.MULTILINE | re.DOTALL)
    if answer is None:
        raise ValueError("README.md has no paragraph that begins with *Should you use DLM")
    return (TOP / HOME).read_text().replace("ANSWER_OF_THE_README", answer[0])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what was found in docs/ by all our files; those of the theme stay."""
    theirs = [file for file in files if file.src_dir != config.docs_dir]
    paths = [TOP / name for name in (*PAGES, *LINKED)]
    for folder in FOLDERS:
        in_folder = sorted((TOP / folder).rglob("*"))
        paths += [path for path in in_folder if path.suffix in SUFFIXES]
    ours = [
        File.generated(config, path.relative_to(TOP).as_posix(), abs_src_path=str(path))
        for path in paths
    ]
    home = File.generated(config, "index.md", content=home_page())
    generated = [File.generated(config, path, content=page()) for path, page in MADE.items()]
    return Files([*theirs, home, *generated, *ours])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write what GitHub reads in the way that Python's Markdown reads it."""
    lines = (_with_bars(line) for line in markdown.split("\n"))
    return "\n".join(_with_lists_apart(lines))


def _with_bars(line: str) -> str:
    """In the code of a table, GitHub wants `\\|` where Python's Markdown wants `|`."""
    return CODE.sub(_unescaped, line) if line.startswith("|") else line


def _unescaped(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def _with_lists_apart(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and a blank one between a paragraph and the list directly below it."""
    in_code = in_paragraph = False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
        starts_item = not in_code and ITEM.match(line)
        if starts_item and in_paragraph:
            yield ""
        yield line
        starts_paragraph = line[:1] not in ("", " ", "|", "#", "`")
        in_paragraph = bool(line) and not starts_item and (in_paragraph or starts_paragraph)
