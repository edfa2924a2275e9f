"""Where things lie: the configuration that travels with the package, the data root, the results folder."""

import os
from pathlib import Path


def conf_dir() -> Path:
    """The folder of YAML groups: inside the installed package, or `conf/` beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "conf"
    return packed if packed.is_dir() else package.parent / "conf"


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder with one sub-folder per dataset: what the user named, else `DLMEXP_DATA`, else `./data`."""
    return Path(given or os.environ.get("DLMEXP_DATA") or "data")
