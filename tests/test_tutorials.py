"""The tutorials of docs/tutorials do what they say: their blocks run in order, in a folder of their
own, print what is shown, and draw their pictures.

    ```console                  lines with `$` are commands, the others print what follows;
    ```python                   runs in this process, all blocks of a page in one module;
    ```text                     directly after it: what it prints;
    ```python title="FILE"      (yaml, too) is written to FILE;
    ```sh                       is only shown.

A page with `dlmexp data fetch` finds the real files in place of downloaded ones, and is skipped
where there are none. The notebook in examples/ is run in a kernel of its own. `scripts/tutorials`
runs all of them and writes outputs and pictures into them.
"""

import base64
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib.image
import numpy as np
import pytest

from dlmexp.cli import main
from tests.support.real_data import MISSING, real_data
from tests.support.values import same_text

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = REPOSITORY / "docs" / "tutorials"
PICTURES = PAGES / "pictures"
NAMES = sorted(path.name for path in PAGES.glob("[0-9]*.md"))
PUBLISHED = "results/paper"
NOTEBOOK = REPOSITORY / "examples" / "own-data.ipynb"
BLOCK = re.compile(
    r"""^```(console|python|yaml)(?: title="([^"]+)")?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?""",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
PICTURE = re.compile(rf"!\[[^\]]*\]\({PICTURES.name}/([^)]+)\)")
ESCAPES = re.compile(r"\x1b\[[\d;]*m")  # of bold letters in a notebook
NEEDS_DATA = "dlmexp data fetch"
# Seconds, and behind them the share of fits at their limit and the data sets, in a leaderboard.
SECONDS = re.compile(r"[\d.]+(?=(?: \d+ %)? \d+ of \d+$)")
# What depends on the speed of the machine, and on whether it has SLURM.
PROGRESS = re.compile(
    r"^(\d+ cells? in |batch \d+/|  \d+/\d+ cells,|the longest job takes |no likely start).*\n",
    re.MULTILINE,
)


def environment(**settings: str) -> Any:
    """The environment of a run that gives the same on every machine, as a context."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DLMEXP_")}
    settings |= {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(REPOSITORY),
    }
    return mock.patch.dict(os.environ, kept | settings, clear=True)


def played(name: str, folder: Path) -> tuple[str, dict[str, Path]]:
    """A tutorial run in a process of its own (plugins stay there, and no GPU changes a digit): its
    text with what was printed this time, and the pictures that were drawn."""
    with (
        environment(MPLBACKEND="agg"),
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        text = pool.submit(_play, name, folder, real_data()).result()
    return text, {picture: next(folder.rglob(picture)) for picture in PICTURE.findall(text)}


def _play(name: str, folder: Path, data: Path | None) -> str:
    """Run a tutorial in this process, with `folder` as the current one; its text with what was
    printed."""
    if data is not None and NEEDS_DATA in (PAGES / name).read_text():
        (folder / "data").symlink_to(data)
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
        with redirect_stdout(StringIO()) as printed, redirect_stderr(printed):
            exec(compile(body, "tutorial", "exec"), module)
        shown = _steady(printed.getvalue()) or None
    title = "" if file is None else f' title="{file}"'
    return f"```{language}{title}\n{body}```\n" + (
        "" if shown is None else f"\n```text\n{shown}```\n"
    )


def _printed_by(line: str) -> str:
    """What a command prints: of ours in this process, which has torch already, others in a
    shell."""
    words = shlex.split(line.replace("\\\n", ""))
    if words[0] != "dlmexp":
        return subprocess.check_output(line, shell=True, text=True)
    sys.argv = words  # which records keep
    with redirect_stdout(StringIO()) as printed, redirect_stderr(printed):
        code = main(words[1:])
    return _steady(printed.getvalue()) + (f"[exit code {code}]\n" if code else "")


def _steady(text: str) -> str:
    """Output without progress and estimates of time, which are others each time, and without blank
    edges."""
    kept = re.sub(" +$", "", PROGRESS.sub("", text), flags=re.MULTILINE).strip("\n")
    return f"{kept}\n" if kept else ""


def blocks(path: Any) -> np.ndarray:
    """Mean colours of 10 x 10 pixel blocks: blind to the shapes of letters, not to lines, colours
    and layout."""
    image = matplotlib.image.imread(path)[..., :3]
    height, width = (side // 10 * 10 for side in image.shape[:2])
    return image[:height, :width].reshape(height // 10, 10, width // 10, 10, 3).mean(axis=(1, 3))


def plain(line: str) -> str:
    """Spaces, rules and seconds of training do not count."""
    return SECONDS.sub("-", " ".join(re.sub("[─━]+", "─", line).split()))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_prints_and_draws_what_it_shows(name: str, tmp_path: Path):
    """Decimal numbers may differ a little, whole ones may not. If a difference is right:
    scripts/tutorials."""
    shown = (PAGES / name).read_text()
    if "sklearn" in shown:
        pytest.importorskip("sklearn")
    if NEEDS_DATA in shown and real_data() is None:
        pytest.skip(MISSING)
    text, pictures = played(name, tmp_path)
    for now, then in zip_longest(text.splitlines(), shown.splitlines(), fillvalue=""):
        assert same_text(plain(now), plain(then), absolute=0.03, relative=0.05), (
            f"{then}\nis now\n{now}"
        )
    for picture, path in pictures.items():
        assert difference(path, PICTURES / picture) < 0.04, picture


def executed(path: Path, folder: Path) -> Any:
    """A notebook whose cells were run in a folder, by a kernel of their own."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    options = {"timeout": 1800, "record_timing": False, "coalesce_streams": True}
    with environment():
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    return notebook


def shown_by(notebook: Any) -> tuple[list[str], list[bytes]]:
    """The lines that a notebook prints, without progress and warnings, and its pictures."""
    lines, pictures = [], []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                pictures.append(base64.b64decode(data["image/png"]))
            elif output.output_type == "execute_result":
                lines += data["text/plain"].splitlines()
            elif output.get("name") == "stdout":
                lines += _steady(ESCAPES.sub("", output.text)).splitlines()
    return [line for line in map(plain, lines) if line], pictures


@pytest.mark.slow
@pytest.mark.processes
def test_the_notebook_prints_and_draws_what_it_shows(tmp_path: Path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("sklearn")
    import nbformat

    lines, pictures = shown_by(executed(NOTEBOOK, tmp_path))
    lines_before, pictures_before = shown_by(nbformat.read(NOTEBOOK, as_version=4))
    for now, then in zip_longest(lines, lines_before, fillvalue=""):
        assert same_text(now, then, absolute=0.03, relative=0.05), f"{then}\nis now\n{now}"
    for drawn, before in zip(pictures, pictures_before, strict=True):
        assert difference(BytesIO(drawn), BytesIO(before)) < 0.04


def difference(drawn: Any, before: Any) -> float:
    """The mean difference of two pictures of nearly the same size."""
    now, then = blocks(drawn), blocks(before)
    assert np.abs(np.subtract(now.shape, then.shape)).max() <= 2
    rows, columns = np.minimum(now.shape, then.shape)[:2]
    return float(np.abs(now[:rows, :columns] - then[:rows, :columns]).mean())


def play_notebook(path: Path) -> None:
    """Run a notebook and write what it prints and draws into it."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(path, Path(folder))
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


def pages(names: list[str]) -> list[str]:
    """The pages that can be run here."""
    unknown = set(names) - set(NAMES)
    if unknown:
        sys.exit(f"{', '.join(unknown)}: there are {', '.join(NAMES)}")
    runnable = []
    for name in names or NAMES:
        if NEEDS_DATA in (PAGES / name).read_text() and real_data() is None:
            print(f"{name}: skipped, {MISSING}")
        else:
            runnable.append(name)
    return runnable


if __name__ == "__main__":
    if not sys.argv[1:]:
        play_notebook(NOTEBOOK)
    for name in pages(sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            text, pictures = played(name, Path(folder))
            (PAGES / name).write_text(text)
            for picture, path in pictures.items():
                (PICTURES / picture).write_bytes(path.read_bytes())
        print(f"{name}: {len(pictures)} pictures")
