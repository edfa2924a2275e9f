"""Where things lie: the configuration that travels with the package, users' own, the data root."""

import os
from pathlib import Path

CONFIG_DIRS = "DLMEXP_CONFIG_DIRS"  # users' own `conf` folders, for all commands and for jobs in other processes


def conf_dir() -> Path:
    """The folder of YAML groups: inside the installed package, or `conf/` beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "conf"
    return packed if packed.is_dir() else package.parent / "conf"


def conf_dirs() -> list[Path]:
    """Our folder of YAML groups, then those that `DLMEXP_CONFIG_DIRS` names."""
    own = os.environ.get(CONFIG_DIRS, "").split(os.pathsep)
    return [conf_dir(), *(Path(folder) for folder in own if folder)]


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder with one sub-folder per dataset: what the user named, else `DLMEXP_DATA`, else `./data`."""
    return Path(given or os.environ.get("DLMEXP_DATA") or "data")
