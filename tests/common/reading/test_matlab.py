"""MATLAB files are read by a process with limits."""

import struct

import pytest

from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.matlab import read_variables


def test_a_matlab_file_that_claims_too_much_memory(tmp_path):
    """A cell array of a thousand million cells: refused by the limit of the process that reads
    it."""
    parts = [
        (6, struct.pack("<II", 1, 0)),
        (5, struct.pack("<ii", 2**15, 2**15)),
        (1, b"X".ljust(8, b"\0")),
    ]
    body = b"".join(
        struct.pack("<II", kind, 1 if kind == 1 else len(data)) + data for kind, data in parts
    )
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    (tmp_path / "a.mat").write_bytes(header + struct.pack("<II", 14, len(body)) + body)
    with pytest.raises(Unreadable, match=r"a\.mat"):
        read_variables(tmp_path / "a.mat", "X")
