"""The methods of `conf/method` by name, for those who only read records."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dlmexp.paths import conf_dir


def methods(*folders: Path) -> dict[str, dict[str, Any]]:
    """Name -> objective, variant, select; a user's own `conf` folders may add to ours."""
    paths = [path for folder in (conf_dir(), *folders) for path in sorted((folder / "method").glob("*.yaml"))]
    return {path.stem: dict(OmegaConf.to_container(OmegaConf.load(path))) for path in paths}  # pyright: ignore
