"""Users' own conf folders on Hydra's search path, for composing, `--cfg job` and completion alike.

It lies here because Hydra accepts plugins from the namespace `hydra_plugins` only.
"""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from dlmexp.common.paths import conf_dirs


class UserConf(SearchPathPlugin):
    """Behind our own folder: a name that both have is ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folders that are not ours."""
        for folder in conf_dirs()[1:]:
            search_path.append("dlmexp", f"file://{folder.resolve()}")
