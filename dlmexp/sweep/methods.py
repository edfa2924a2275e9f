"""The methods of `conf/method` by name, for those who only read records."""

from functools import cache
from typing import Any

import yaml

from dlmexp.paths import conf_dir


@cache
def methods() -> dict[str, dict[str, Any]]:
    """Name -> objective, variant, select."""
    paths = sorted((conf_dir() / "method").glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text()) for path in paths}
