"""What a record says of how it came about."""

import platform
import re

import torch

from dlmexp import __version__
from dlmexp.records import record as module
from dlmexp.records.record import commit, provenance


def test_versions_machine_and_command(monkeypatch):
    module._constant.cache_clear()
    monkeypatch.setattr("sys.argv", ["/somewhere/dlmexp", "run", "sizes=['5%']"])
    found = provenance("cpu")
    module._constant.cache_clear()
    assert found.version == __version__
    assert found.torch == torch.__version__.partition("+")[0] or found.torch == torch.__version__
    assert found.python == platform.python_version()
    assert found.command == """dlmexp run 'sizes=['"'"'5%'"'"']'"""


def test_commit_and_time():
    found = commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{12}\+?", found)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", provenance("cpu").time or "")
