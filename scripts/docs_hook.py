"""A hook of MkDocs that chooses the files of the site.

Each file has the same path in the site as in the repository. So CONTRIBUTING.md is a page without a
copy in docs/, and links between pages, pictures and scripts work on the site as they do on GitHub.
A link to any other file fails the build. The site has its own home page, and pages that
`docs_reference` makes.
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
GENERATED_PAGES = {
    "docs/commands.md": commands_page,
    "docs/settings.md": settings_page,
    "results/figures.md": figures_page,
}
RESULTS = (
    "results/paper/README.md",
    "results/paper/DETAILS.md",
    "results/fair/README.md",
    "results/uci/README.md",
    "results/more/README.md",
)
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "data/README.md", *RESULTS)
FOLDERS = ("docs", "results/paper/figures", "results/fair/figures", "results/more/figures")
LINKED_FILES = (
    "CITATION.cff",
    "LICENSE",
    "examples/dlm.py",
    "examples/own-data.ipynb",
    "scripts/example_mlls.py",
    "dlmexp/common/reading/__init__.py",
)
SUFFIXES = (".md", ".png", ".svg", ".css")
CODE = re.compile(r"`[^`\n]+`")
LIST_ITEM = re.compile(r"(- |1\. )")


def home_page() -> str:
    """Return the home page of the site, with the answer from the README in it."""
    answer = re.search(r"^\*Should you use DLM.*?\*$", README.read_text(), re.MULTILINE | re.DOTALL)
    if answer is None:
        raise ValueError("README.md has no paragraph that begins with *Should you use DLM")
    return (TOP / HOME).read_text().replace("ANSWER_OF_THE_README", answer[0])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the site: those of the theme, and ours in place of those in docs/."""
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    paths = [TOP / name for name in (*PAGES, *LINKED_FILES)]
    for folder in FOLDERS:
        in_folder = sorted((TOP / folder).rglob("*"))
        paths += [path for path in in_folder if path.suffix in SUFFIXES]
    ours = []
    for path in paths:
        name = path.relative_to(TOP).as_posix()
        ours.append(File.generated(config, name, abs_src_path=str(path)))
    home = File.generated(config, "index.md", content=home_page())
    generated = []
    for name, page in GENERATED_PAGES.items():
        generated.append(File.generated(config, name, content=page()))
    return Files([*of_theme, home, *generated, *ours])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Translate Markdown as GitHub reads it to Markdown as Python's library reads it."""
    lines = map(_with_plain_bars, markdown.split("\n"))
    return "\n".join(_with_blank_lines_before_lists(lines))


def _with_plain_bars(line: str) -> str:
    """In the code of a table, GitHub wants `\\|` where Python's Markdown wants `|`."""
    return CODE.sub(_unescaped, line) if line.startswith("|") else line


def _unescaped(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def _with_blank_lines_before_lists(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with a blank line between a paragraph and a list directly below it."""
    in_code = False
    in_paragraph = False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
        starts_item = not in_code and LIST_ITEM.match(line)
        if starts_item and in_paragraph:
            yield ""
        yield line
        starts_paragraph = line[:1] not in ("", " ", "|", "#", "`")
        in_paragraph = bool(line) and not starts_item and (in_paragraph or starts_paragraph)
