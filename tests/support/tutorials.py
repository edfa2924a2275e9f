"""The tutorials of docs/tutorials as programs: their blocks are run in order, in a folder of their own.

What a page shows is what its commands print, and its pictures are what they draw:

    ```console                  lines with `$` are commands, the others what they print (progress is left out);
    ```python                   runs in this process, all blocks of a page in one module;
    ```text                     directly after it: what it prints;
    ```python title="FILE"      (yaml, too) is written to FILE;
    ```sh                       is only shown.

`scripts/tutorials` runs all pages and writes outputs and pictures into them; a test runs them and compares.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = REPOSITORY / "docs" / "tutorials"
PICTURES = "pictures"
PUBLISHED = "results/paper"
BLOCK = re.compile(
    r"""^```(console|python|yaml)(?: title="([^"]+)")?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?""",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
PICTURE = re.compile(rf"!\[[^\]]*\]\({PICTURES}/([^)]+)\)")
PROGRESS = re.compile(r"^(\d+ cells? in |batch \d+/|  \d+/\d+ cells,)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
ABSOLUTE, RELATIVE = 0.03, 0.05  # what decimal numbers may differ by; whole ones may not


@dataclass(frozen=True)
class Page:
    """A tutorial after a run: its text with what was printed this time, and the pictures that were drawn."""

    text: str
    pictures: dict[str, bytes]


def names() -> list[str]:
    return sorted(path.name for path in PAGES.glob("[0-9]*.md"))


def played(name: str, folder: Path) -> Page:
    """Run a tutorial in a new folder, in a process of its own: plugins stay there, and no GPU changes a digit."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = {key: value for key, value in os.environ.items() if not key.startswith("DLMEXP_")}
    settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "tests.support.tutorials", name, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, env=hidden | settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} did not run to its end:\n{done.stderr}")
    text = done.stdout
    drawn = {picture: list(folder.rglob(picture)) for picture in PICTURE.findall(text)}
    if odd := [picture for picture, found in drawn.items() if len(found) != 1]:
        raise RuntimeError(f"{name}: not one picture, but none or several, were drawn as {', '.join(odd)}")
    return Page(text, {picture: found.read_bytes() for picture, (found,) in drawn.items()})


def play(name: str, folder: Path) -> str:
    """Run a tutorial in this process, with `folder` as the current one; its text with what was printed."""
    (folder / PUBLISHED).mkdir(parents=True)  # as in a checkout
    for pack in (REPOSITORY / PUBLISHED).glob("records*.parquet"):
        (folder / PUBLISHED / pack.name).symlink_to(pack)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    module: dict[str, Any] = {"__name__": "tutorial"}
    return BLOCK.sub(lambda block: _block(block, module), (PAGES / name).read_text())


def _block(block: re.Match[str], module: dict[str, Any]) -> str:
    """A block as it reads after it was run."""
    language, file, body, shown = block.groups()
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(body)
        return block[0]
    if language == "console":
        commands = COMMAND.findall(body)
        return "```console\n" + "".join(f"$ {line}\n{_printed_by(line)}" for line in commands) + "```\n" + _text(shown)
    if language == "python":
        with _captured() as printed:
            exec(compile(body, "tutorial", "exec"), module)
        return f"```python\n{body}```\n" + _text(_steady(printed.getvalue()) or None)
    return block[0]


def _text(output: str | None) -> str:
    return "" if output is None else f"\n```text\n{output}```\n"


def _printed_by(line: str) -> str:
    """What a command prints: of ours in this process, which has torch already, others in a shell."""
    words = shlex.split(line.replace("\\\n", ""))
    if words[0] != "dlmexp":
        done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        code, printed = done.returncode, done.stdout
    else:
        from dlmexp.cli import main

        sys.argv = words  # which records keep
        with _captured() as buffer:
            code = main(words[1:])
        printed = buffer.getvalue()
    return _steady(printed) + (f"[exit code {code}]\n" if code else "")


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer), contextlib.redirect_stderr(buffer):
        yield buffer


def _steady(text: str) -> str:
    """Output without progress and estimates of time, which are others each time, and without blank edges."""
    lines = [line.rstrip() for line in text.splitlines() if not PROGRESS.match(line)]
    kept = "\n".join(lines).strip("\n")
    return f"{kept}\n" if kept else ""


def differences(shown: str, printed: str) -> list[str]:
    """Lines of a page that a run would now write differently: `-` as shown, `+` as printed. Spaces and rules do not
    count, decimal numbers may differ a little."""
    pairs = zip_longest(shown.splitlines(), printed.splitlines(), fillvalue="")
    return [line for old, new in pairs if not _alike(old, new) for line in (f"- {old}", f"+ {new}")]


def _alike(old: str, new: str) -> bool:
    plain = [re.sub(r"\s+", " ", re.sub("[─━]+", "─", line)).strip() for line in (old, new)]
    if NUMBER.sub("#", plain[0]) != NUMBER.sub("#", plain[1]):
        return False
    return all(_close(*pair) for pair in zip(*map(NUMBER.findall, plain), strict=True))


def _close(old: str, new: str) -> bool:
    if old == new or "." not in old + new:
        return old == new
    return abs(float(old) - float(new)) <= ABSOLUTE + RELATIVE * abs(float(old))


def main() -> None:
    """`PAGE FOLDER`: play it in that folder and print it. `[PAGE]`: write it, or all pages, anew."""
    if len(sys.argv) > 2:
        text = play(sys.argv[1], Path(sys.argv[2]))
        sys.stdout.write(text)
        return
    (PAGES / PICTURES).mkdir(exist_ok=True)
    for name in sys.argv[1:] or names():
        with tempfile.TemporaryDirectory() as folder:
            page = played(name, Path(folder))
        (PAGES / name).write_text(page.text)
        for picture, content in page.pictures.items():
            (PAGES / PICTURES / picture).write_bytes(content)
        print(f"{name}: {len(page.pictures)} pictures")


if __name__ == "__main__":
    main()
