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
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.support.values import same_text

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


def names() -> list[str]:
    return sorted(path.name for path in PAGES.glob("[0-9]*.md"))


def played(name: str, folder: Path) -> tuple[str, dict[str, Path]]:
    """A tutorial run in a process of its own (plugins stay there, and no GPU changes a digit): its text with what was
    printed this time, and the pictures that were drawn."""
    hidden = {key: value for key, value in os.environ.items() if not key.startswith("DLMEXP_")}
    settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "tests.support.tutorials", name, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, env=hidden | settings, capture_output=True, text=True)
    assert done.returncode == 0, f"{name} did not run to its end:\n{done.stderr}"
    drawn = {picture: list(folder.rglob(picture)) for picture in PICTURE.findall(done.stdout)}
    odd = [picture for picture, paths in drawn.items() if len(paths) != 1]
    assert not odd, f"{name}: not one picture, but none or several, were drawn as {odd}"
    return done.stdout, {picture: path for picture, (path,) in drawn.items()}


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
    elif language == "console":
        body = "".join(f"$ {line}\n{_printed_by(line)}" for line in COMMAND.findall(body))
    elif language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
            exec(compile(body, "tutorial", "exec"), module)
        shown = _steady(printed.getvalue()) or None
    title = "" if file is None else f' title="{file}"'
    return f"```{language}{title}\n{body}```\n" + ("" if shown is None else f"\n```text\n{shown}```\n")


def _printed_by(line: str) -> str:
    """What a command prints: of ours in this process, which has torch already, others in a shell."""
    words = shlex.split(line.replace("\\\n", ""))
    if words[0] != "dlmexp":
        done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        code, printed = done.returncode, done.stdout
    else:
        from dlmexp.cli import main

        sys.argv = words  # which records keep
        with contextlib.redirect_stdout(io.StringIO()) as buffer, contextlib.redirect_stderr(buffer):
            code = main(words[1:])
        printed = buffer.getvalue()
    return _steady(printed) + (f"[exit code {code}]\n" if code else "")


def _steady(text: str) -> str:
    """Output without progress and estimates of time, which are others each time, and without blank edges."""
    lines = [line.rstrip() for line in text.splitlines() if not PROGRESS.match(line)]
    kept = "\n".join(lines).strip("\n")
    return f"{kept}\n" if kept else ""


def differences(shown: str, printed: str) -> list[tuple[str, str]]:
    """Lines of a page as they are shown, and as a run would now write them, where these differ. Spaces and rules do
    not count; decimal numbers may differ a little, whole ones may not."""

    def alike(*lines: str) -> bool:
        plain = [re.sub(r"\s+", " ", re.sub("[─━]+", "─", line)).strip() for line in lines]
        return same_text(plain[1], plain[0], absolute=0.03, relative=0.05)

    pairs = zip_longest(shown.splitlines(), printed.splitlines(), fillvalue="")
    return [pair for pair in pairs if not alike(*pair)]


if __name__ == "__main__":  # `PAGE FOLDER`: play it in that folder and print it. `[PAGE]`: write it, or all pages, anew
    if len(sys.argv) > 2:
        sys.stdout.write(play(sys.argv[1], Path(sys.argv[2])))
        sys.exit()
    (PAGES / PICTURES).mkdir(exist_ok=True)
    for name in sys.argv[1:] or names():
        with tempfile.TemporaryDirectory() as folder:
            text, pictures = played(name, Path(folder))
            (PAGES / name).write_text(text)
            for picture, path in pictures.items():
                (PAGES / PICTURES / picture).write_bytes(path.read_bytes())
        print(f"{name}: {len(pictures)} pictures")
