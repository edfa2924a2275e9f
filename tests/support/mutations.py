"""Sound values, files and archives, and ways to spoil them that leave most of their structure as it
was; and overrides, sound and unsound."""

import bz2
import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.io

from dlmexp.experiment.plan.compose import compose

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, -(2**63), 10**25, 0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"),
    float("inf"), "", " ", "x", "1", "nan", "\0", "\n", "../..", "/etc/passwd", "a/b", "ü" * 300, "<b>", "{}", "\u202e",
    "'", '"', "[red]", "%s", "end", "\ud800", [], [1], [[]], {}, {"": 0}, {"nll": "x"}, {"nll": 1e308, "mse": -1.0},
    [None] * 40, {"a": {"b": {"c": []}}},
)  # fmt: skip


def spoiled(value: Any, chance: random.Random) -> Any:
    """A JSON value with something in it replaced, removed, repeated, renamed, or nested deeper than
    anybody needs."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name, kind = chance.choice(list(value)), chance.random()
        if kind < 0.7:
            return {**value, name: spoiled(value[name], chance)}
        if kind < 0.8:
            return {key: inner for key, inner in value.items() if key != name}
        return {**value, str(chance.choice(ODD)): chance.choice([value[name], *ODD])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        k = chance.randrange(len(value))
        inner = chance.choice(
            [[], [value[k]] * 2, [spoiled(value[k], chance)], [chance.choice(ODD)]]
        )
        return [*value[:k], *inner, *value[k + 1 :]]
    made = chance.choice(ODD)
    for _ in range(chance.choice([30, 200, 900]) if chance.random() < 0.03 else 0):
        made = [made] if chance.random() < 0.5 else {"a": made}
    return made


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def flipped(data: bytes, chance: random.Random, often: float = 1.0) -> bytes:
    """Bytes with a few of them changed, cut off, repeated or taken away; as they were in 1 -
    `often` of the cases."""
    content = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8]) if chance.random() < often else 0):
        at, few, size = (
            chance.randrange(len(content) or 1),
            chance.randrange(1, 9),
            chance.choice([2, 4, 8]),
        )
        number = chance.choice([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1, 4096])
        end, new = chance.choice([
            (at + 1, bytes(byte ^ 1 << chance.randrange(8) for byte in content[at : at + 1])),
            (len(content), b""), (at + few, b""), (at, bytes(content[at : at + 5 * few])),
            (at + size, number.to_bytes(size, chance.choice(["little", "big"]))),
        ])  # fmt: skip
        content[at:end] = new
    return bytes(content)


def npy(array: np.ndarray, chance: random.Random | None = None) -> bytes:
    """An array as npy; with `chance`, under a header that may claim something else."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    data = buffer.getvalue()
    if chance is None or chance.random() < 0.6:
        return data if chance is None else flipped(data, chance, often=0.5)
    kind = chance.choice(
        ["'<f8'", "'|O'", "'<U3'", "'|S0'", "'<f16'", "[('a', '<f8')]", "3", "'x'", "'<M8[s]'"]
    )
    shape = chance.choice(
        ["()", "(0,)", "(-1,)", "(10**12,)", "(1000000000000,)", "(2, 3)", "3", "(1.5,)", "(None,)"]
    )
    header = f"{{'descr': {kind}, 'fortran_order': {chance.choice([True, False, 0])}, 'shape': {shape}, }}"
    return data[:10] + header.encode().ljust(117) + b"\n" + data[128:]


def npz(arrays: dict[str, np.ndarray], chance: random.Random) -> bytes:
    """An npz file in which something may be wrong, in one array or in the zip file."""
    buffer, victim = io.BytesIO(), chance.choice(list(arrays))
    with zipfile.ZipFile(
        buffer, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(array, chance if name == victim else None))
        if chance.random() < 0.1:
            archive.writestr(chance.choice(["../x.npy", "/etc/x", "x", "a/b.npy", "e"]), b"odd")
    return flipped(buffer.getvalue(), chance, often=0.3)


def odd_arrays(chance: random.Random) -> dict[str, np.ndarray]:
    """Arrays that a user may have saved, or nobody ever would."""
    rows = chance.choice([0, 1, 7, 60])
    kinds = [
        np.arange(float(rows)), np.full(rows, np.nan), np.array(["a", "é"] * rows), np.array([b"a", b"\xff"] * rows),
        np.zeros((rows, 0)), np.array("t"), np.zeros(rows, dtype=complex), np.zeros(rows, dtype="M8[s]"),
        np.ones((rows, 2, 2)), np.array([{}] * rows, dtype=object), np.zeros(rows, dtype=[("a", "f8")]),
    ]  # fmt: skip
    names = chance.sample(["y", "x", "", "z.npy", "a/b", "ü", "target"], k=chance.randrange(1, 5))
    return {name: chance.choice(kinds) for name in names}


def archive(kind: str, chance: random.Random) -> bytes:
    """A zip, tgz or bz2 file with a text in it."""
    text, buffer, name = (
        b"1,2,3\n" * chance.choice([0, 1, 1000]),
        io.BytesIO(),
        chance.choice(["f.txt", "a/f.txt"]),
    )
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", chance.choice([0, 8, 12, 14])) as file:
            file.writestr(name, text)
    elif kind == "bz2":
        buffer.write(bz2.compress(text))
    else:
        with tarfile.open(fileobj=buffer, mode="w") as file:
            info = tarfile.TarInfo(name)
            info.size = len(text)
            file.addfile(info, io.BytesIO(text))
    data = buffer.getvalue()
    if kind == "tgz":
        data = gzip.compress(flipped(data, chance, often=0.2))
    return flipped(data, chance, often=0.7)


def mat(chance: random.Random) -> bytes:
    """A MATLAB 5 file with something other than the matrix that is looked for, or with wrong
    bytes."""
    held = [
        np.ones((chance.randrange(4), 3)),
        np.array(["a", "bc"]),
        np.array([{}, 1]),
        {"field": np.arange(3)},
    ]
    buffer = io.BytesIO()
    scipy.io.savemat(
        buffer, {chance.choice("XXY"): chance.choice(held)}, do_compression=chance.random() < 0.5
    )
    return flipped(buffer.getvalue(), chance, often=0.8)


def csv(chance: random.Random) -> bytes:
    """A table with odd fields, names, lines and letters."""
    odd = [
        "",
        "NA",
        "nan",
        "inf",
        "1e999",
        '"',
        '"a,b"',
        '"x\ny"',
        "é",
        "\ufeff",
        "1,2",
        " 1",
        "9" * 400,
        "\0",
        "true",
    ]
    names = [
        chance.choice(["x", "y", "z", "", "x", "ü", "a b"])
        for _ in range(chance.choice([1, 2, 3, 60]))
    ]
    lines = [",".join(names)]
    for _ in range(chance.choice([0, 1, 5, 40])):
        fields = [str(chance.choice([1, 0, 2.5, "a", "b"])) for _ in names]
        if chance.random() < 0.1:
            fields[chance.randrange(len(fields))] = chance.choice(odd)
        lines.append(",".join(fields[:-1] if chance.random() < 0.03 else fields))
    text = chance.choice(["\n", "\n", "\r\n", "\r"]).join(lines)
    data = text.encode(chance.choice(["utf-8", "utf-8", "utf-16", "latin-1"]), errors="replace")
    return flipped(data, chance, often=0.2)


def parquet(chance: random.Random) -> bytes:
    rows, buffer = chance.choice([0, 3, 30]), io.BytesIO()
    x: Any = chance.choice([["a"] * rows, [None] * rows, np.ones(rows)])
    pd.DataFrame({"y": np.arange(rows), "x": x}).to_parquet(
        buffer, compression=chance.choice(["snappy", "zstd", None])
    )
    return flipped(buffer.getvalue(), chance)


BASE = [
    "dataset=ringnorm_drawn", "method=[elbo,fixed_log_dlm]", "estimator=[ups]", "beta=list",
    "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=5", "sizes=[20]", "seeds=[0]", "device=cpu",
]  # fmt: skip
GROUPS = (
    "dataset",
    "method",
    "estimator",
    "protocol",
    "beta",
    "experiment",
    "preset",
    "hydra/launcher",
)
NAMED = (
    "banana",
    "[banana]",
    "[elbo,elbo]",
    "grid",
    "list",
    "quick",
    "debug",
    "paper",
    "default",
    "csv",
    "[csv]",
)
NO_KEYS = (
    "=",
    "==",
    "",
    "a",
    "-",
    "--",
    "=1",
    " =1",
    "a b=1",
    "ä=1",
    "[=1",
    "${a}=1",
    "hydra.run.dir=x",
    "hydra=x",
)
# They would write elsewhere, read elsewhere, or import something.
LEFT_ALONE = (
    "results",
    "plan",
    "data_root",
    "plugins",
    "csv.path",
    "csv.test",
    "workers",
    "budget",
    "parts",
)
SHORT = ("lr", "lengthscale", "noise", "training.lr", "training.max_iterations", "largest")
VALUES = (
    "0", "1", "-1", "20", "0.1", "1e300", "1e9999999", "nan", "-inf", "1_000", "99999999999999999999999999", "true",
    "null", "???", "", "''", "a", "A b", "ü", "\U0001f600", "x" * 300, "../../x", "/", "..", "~", "%", "5%", "'5%'",
    "1e9999999%", "'1e9999999%'", "101%", "whitened", "all", "elbo", "ups", "end", "epoch", "mean", "probit", "cuda:99",
    "float32", "0-4", "4-0", "0-99999999999", "[]", "[1,2]", "[[1]]", "[[]]", "[a]", "[null]", "[-1]", "[nan]",
    "['5%']", "['1e9999999%']", "[1e9999999]", "[{a:1}]", "['']", "[0-4]", "[0,[1]]", "[99999999999999999999]", "{}",
    "{a:1}", "{a:{b:1}}", "{1:2}", "{a:[1]}", "{lengthscale:a}", "{samples:[1]}", "{rows:30}", "{checks:5}",
    "{checks:{y_mean:a}}", "${name}", "${nosuch}", "${oc.env:NOSUCH}", "${", "}", "[", "[1,2", "{a", "'", '"', "a,b",
    "range(3)", "choice(1,2)", "sort(3,1)", "int(3)", "glob(*)", "interval(0,1)", "=", "a=b", "\\", "\\,", "a:b",
    "a b c", "\t", "1,", ",", "(1)", "<>", "#", "!", "*", "@", "`",
)  # fmt: skip
PLAUSIBLE = ("0", "1", "2", "5", "20", "30", "0.1", "1.5", "1e-3", "true", "false", "null", "a", "[]", "[0]", "[1,2]",
             "[0.1,1]", "['50%']", "{}", "whitened", "5%", "0-4", "[[1]]", "{a:1}", "-1", "99999999999999")  # fmt: skip
PREFIXES = ("", "", "", "", "", "", "+", "++", "~")


@cache
def sections() -> list[list[str]]:
    """All settings of a run, by the first part of their names; with some that are none."""

    def names(node: dict, prefix: str) -> Iterator[str]:
        for name, value in {**node, "nosuch": None}.items():
            yield prefix + str(name)
            if isinstance(value, dict):
                yield from names(value, f"{prefix}{name}.")

    config = asdict(compose(BASE))
    found = [
        [name, *(names(value, f"{name}.") if isinstance(value, dict) else [])]
        for name, value in config.items()
    ]
    kept = [[key for key in section if key not in LEFT_ALONE] for section in found]
    return [*filter(None, kept), list(SHORT)]


def typed(chance: random.Random) -> list[str]:
    """One to three overrides of single settings; or a selection of a config group; or what no key
    can be."""
    value = chance.choice(PLAUSIBLE if chance.random() < 0.5 else VALUES)
    if chance.random() < 0.1:
        chosen = chance.choice(NAMED) if chance.random() < 0.4 else value
        selection = f"{chance.choice(PREFIXES)}{chance.choice(GROUPS)}={chosen}"
        return [chance.choice(NO_KEYS) if chance.random() < 0.2 else selection]
    key, prefix = chance.choice(chance.choice(sections())), chance.choice(PREFIXES)
    if chance.random() < 0.03:
        key = key[:-1] + chance.choice("xyz.")
    bare = prefix == "~" and chance.random() < 0.8
    word = prefix + key if bare else f"{prefix}{key}={value}"
    return [word, *(typed(chance)[:2] if chance.random() < 0.4 else [])]
