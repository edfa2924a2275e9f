"""Sound values, files and archives, and ways to spoil them that leave most of their structure as it was."""

import io
import json
import random
import struct
import tarfile
import zipfile
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, -(2**63), 10**25, 0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"),
    float("inf"), "", " ", "x", "1", "nan", "\0", "\n", "../..", "/etc/passwd", "a/b", "ü" * 300, "<b>", "{}", "\u202e",
    "'", '"', "[red]", "%s", "end", "\ud800", [], [1], [[]], {}, {"": 0}, {"nll": "x"}, {"nll": 1e308, "mse": -1.0},
    [None] * 40, {"a": {"b": {"c": []}}},
)  # fmt: skip


def spoiled(value: Any, chance: random.Random) -> Any:
    """A JSON value with something in it replaced, removed, repeated or renamed."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        kind = chance.random()
        if kind < 0.7:
            return {**value, name: spoiled(value[name], chance)}
        if kind < 0.8:
            return {key: inner for key, inner in value.items() if key != name}
        return {**value, str(chance.choice(ODD)): chance.choice([value[name], *ODD])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        k = chance.randrange(len(value))
        inner = chance.choice([[], [value[k]] * 2, [spoiled(value[k], chance)], [chance.choice(ODD)]])
        return [*value[:k], *inner, *value[k + 1 :]]
    return nested(chance) if chance.random() < 0.03 else chance.choice(ODD)


def nested(chance: random.Random) -> Any:
    """A value within values, deeper than anybody needs."""
    value: Any = 0
    for _ in range(chance.choice([30, 200, 900])):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Bytes with a few of them changed, cut off, repeated or taken away."""
    content = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        if not content:
            break
        at = chance.randrange(len(content))
        kind = chance.randrange(6)
        if kind == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[at] = chance.choice([0, 255, 127, 128])
        elif kind == 2:
            del content[at:]
        elif kind == 3:
            del content[at : at + chance.randrange(1, 9)]
        elif kind == 4:
            content[at:at] = content[at : at + chance.randrange(1, 40)]
        else:
            size = chance.choice([2, 4, 8])
            number = chance.choice([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1, 4096])
            content[at : at + size] = number.to_bytes(size, chance.choice(["little", "big"]))
    return bytes(content)


def npy(array: np.ndarray, chance: random.Random | None = None) -> bytes:
    """An array as npy; with `chance`, under a header that may claim something else."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    data = buffer.getvalue()
    if chance is None or chance.random() < 0.3:
        return data
    if chance.random() < 0.4:
        return flipped(data, chance)
    descr = chance.choice(
        ["'<f8'", "'|O'", "'<U3'", "'|S7'", "'|S0'", "'<f16'", "'|V8'", "[('a', '<f8')]", "3", "'x'", "'<M8[s]'"]
    )
    shapes = ["()", "(0,)", "(-1,)", "(1,)", "(10**12,)", "(1000000000000,)", "(2, 3)", "3", "(1.5,)", "(None,)"]
    order, shape = chance.choice(["True", "False", "0"]), chance.choice(shapes)
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data[128:]


def npz(arrays: dict[str, np.ndarray], chance: random.Random) -> bytes:
    """An npz file in which something may be wrong, in one array or in the zip file."""
    buffer, victim = io.BytesIO(), chance.choice(list(arrays))
    method = chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(array, chance if name == victim else None))
        if chance.random() < 0.1:
            archive.writestr(chance.choice(["../x.npy", "/etc/x", "x", "a/b.npy", ""]) or "e", b"odd")
    data = buffer.getvalue()
    return flipped(data, chance) if chance.random() < 0.3 else data


def odd_arrays(chance: random.Random) -> dict[str, np.ndarray]:
    """Arrays that a user may have saved, or nobody ever would."""
    rows = chance.choice([0, 1, 7, 60])
    kinds = [
        np.arange(float(rows)), np.full(rows, np.nan), np.arange(rows), np.array(["a", "b", "é"] * rows)[:rows],
        np.array([b"a", b"\xff"] * rows)[:rows], np.zeros((rows, 3)), np.zeros((rows, 0)), np.array(3.0), np.array("t"),
        np.zeros(rows, dtype=bool), np.zeros(rows, dtype=complex), np.zeros(rows, dtype="M8[s]"), np.ones((rows, 2, 2)),
        np.array([{}] * rows, dtype=object), np.full(rows, 1e300), np.zeros(rows, dtype=[("a", "f8")]),
        np.float16(rows),
    ]  # fmt: skip
    names = chance.sample(["y", "x", "", "z.npy", "a/b", "ü", "target"], k=chance.randrange(1, 5))
    return {name: np.asarray(chance.choice(kinds)) for name in names}


def tar(members: list[tuple[str, bytes]], chance: random.Random) -> bytes:
    """An archive in which a header, a name or a kind of member may be wrong."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=chance.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as file:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if chance.random() < 0.1:
                info.type = chance.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"Q"])
                info.linkname, info.size = chance.choice([name, "..", "x" * 200]), 0
            elif chance.random() < 0.1:
                info.name = chance.choice(["../../x", "/x", "é" * 60, "x" * 300, ""])
            file.addfile(info, io.BytesIO(content) if info.size else None)
    return flipped(buffer.getvalue(), chance) if chance.random() < 0.2 else buffer.getvalue()


def mat(chance: random.Random) -> bytes:
    """A MATLAB 5 file with something other than the matrix that is looked for, or with wrong bytes."""
    held = [
        np.ones((chance.randrange(4), 3)), np.array([[1j, 2]]), np.array(["a", "bc"]), np.array([{}, 1]),
        {"field": np.arange(3)}, scipy.sparse.eye(3), np.ones((1, 2, 2), dtype=np.float32), np.zeros((0, 0)), True,
    ]  # fmt: skip
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {chance.choice("XXY"): chance.choice(held)}, do_compression=chance.random() < 0.5)
    return flipped(buffer.getvalue(), chance) if chance.random() < 0.8 else buffer.getvalue()


def csv(chance: random.Random) -> bytes:
    """A table with odd fields, names, lines and letters."""
    odd = ["", "NA", "nan", "inf", "1e999", '"', '"a,b"', '"x\ny"', "é", "\ufeff", "1,2", " 1", "9" * 400, "\0", "true"]
    names = [chance.choice(["x", "y", "z", "", "x", "ü", "a b"]) for _ in range(chance.choice([1, 2, 3, 60]))]
    lines = [",".join(names)]
    for _ in range(chance.choice([0, 1, 5, 40])):
        fields = [str(chance.choice([1, 0, 2.5, "a", "b"])) for _ in names]
        if chance.random() < 0.1:
            fields[chance.randrange(len(fields))] = chance.choice(odd)
        if chance.random() < 0.03:
            fields = fields[:-1]
        lines.append(",".join(fields))
    text = chance.choice(["\n", "\n", "\r\n", "\r"]).join(lines)
    data = text.encode(chance.choice(["utf-8", "utf-8", "utf-16", "latin-1"]), errors="replace")
    return flipped(data, chance) if chance.random() < 0.2 else data
