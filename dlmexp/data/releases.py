"""Packs of published records, which are files of a release (`dlmexp results fetch`).

All files of a release are in a single folder: the packs, and a list of them, `SHA256SUMS`. The list
has the path of each pack inside `results/`, such as `paper/records-paper.parquet`. In the release,
the name of a pack is this path with `-` in place of `/`.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from dlmexp.common.atomic import is_writable, this_process
from dlmexp.common.errors import UserError
from dlmexp.common.reading.files import read_content
from dlmexp.data.acquisition import INCOMING, download, is_valid, remove_leftovers
from dlmexp.data.dataset import FileSpec

ADDRESS_VARIABLE = "DLMEXP_RESULTS_URL"  # the environment variable with the address of a release
CHECKSUMS = "SHA256SUMS"
MAX_CHECKSUMS_BYTES = 2**20
PACK_NAME = r"[A-Za-z0-9_-]+/[A-Za-z0-9_-]+\.parquet"
CHECKSUM_LINE = re.compile(rf"(?P<sha256>[0-9a-f]{{64}})  (?P<name>{PACK_NAME})")


def release_address(typed: str | None) -> str:
    """Return the address of the release: what was typed, or the environment variable.

    Raises:
        UserError: Both are empty.
    """
    address = typed or os.environ.get(ADDRESS_VARIABLE)
    if not address:
        raise UserError(
            "no release with packs of records is known yet: give the address of its files with "
            f"--url or {ADDRESS_VARIABLE}, or clone the repository, which has the packs in results/"
        )
    return address.rstrip("/")


def fetch_packs(address: str, root: Path, bars: Any) -> list[Path]:
    """Download the packs of a release that are missing here, or have another checksum here.

    Args:
        address: The folder of the release's files.
        root: The folder that the packs are written to, such as `results`.
        bars: A `Progress` of rich.

    Returns:
        The paths of the downloaded packs; none if all were present and valid.

    Raises:
        UserError: A file can't be downloaded, or does not have the checksum of the list.
    """
    if not is_writable(root):
        raise UserError(f"the folder {root} is read-only: choose another with --out")
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{INCOMING}{this_process()}.") as name:
        folder = Path(name)
        packs = _listed_packs(address, folder, bars)
        missing = [pack for pack in packs if not is_valid(pack, root / pack.name)]
        for pack in missing:
            download(pack, folder, bars)
        # Move packs only after all downloads: packs of two releases do not belong together.
        for pack in missing:
            (root / pack.name).parent.mkdir(exist_ok=True)
            os.replace(folder / pack.name, root / pack.name)
    return [root / pack.name for pack in missing]


def _listed_packs(address: str, folder: Path, bars: Any) -> list[FileSpec]:
    """Return the packs that the release lists, with their addresses and checksums."""
    url = f"{address}/{CHECKSUMS}"
    download(FileSpec(CHECKSUMS, url=url), folder, bars)
    text = read_content(folder / CHECKSUMS, MAX_CHECKSUMS_BYTES).decode(errors="replace")
    packs = []
    for line in text.splitlines():
        match = CHECKSUM_LINE.fullmatch(line)
        if match is None:
            raise UserError(f"{url} is no list of packs: '{line[:80]}'")
        name = match["name"]
        name_in_release = name.replace("/", "-")
        pack_url = f"{address}/{name_in_release}"
        packs.append(FileSpec(name, url=pack_url, sha256=match["sha256"]))
    if not packs:
        raise UserError(f"{url} lists no packs")
    return packs
