"""Types with limits for settings, and the conversion that checks them.

msgspec checks the limits; OmegaConf sees the plain types.
"""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dlmexp.common.errors import UserError, shortened
from dlmexp.common.literals import literal

DEVICES = ("auto", "cpu", "cuda")  # cuda: the first GPU that CUDA sees; all trains on that one


def one_of(*words: str) -> Meta:
    """The limit of a text that is one of these words."""
    return Meta(pattern=f"^({'|'.join(words)})$")


ITERATIONS = "[1-9][0-9]{0,15}"  # a whole number as text
RESERVED = (
    "records",
    "data",
    "tables",
    "running",
    "checkpoints",
    "quarantine",
    "multirun",
    "figures",
)
# The name of an experiment's folder in the results; without a line end, which `$` would allow.
FOLDER = f"(?!({'|'.join(RESERVED)})$)[A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}(?![^/])"
IN_WORDS = {
    FOLDER: f"at most 100 letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}",
    ITERATIONS: "a number of iterations", "array of length >= 1": "at least one value",
}  # fmt: skip
Device = Annotated[str, one_of(*DEVICES)]
Evaluate = Annotated[str, one_of("end", "epoch", ITERATIONS)]
Filled = Meta(min_length=1)
FolderName = Annotated[str, one_of(FOLDER)]
Parameterisation = Annotated[str, one_of("whitened", "unwhitened")]
Positive = Annotated[float, Meta(gt=0, le=1e300)]
Rate = Annotated[float, Meta(gt=0, le=10)]  # of learning
Ratio = Annotated[float, Meta(ge=1.01, le=1e300)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Variant = Annotated[str, one_of("joint", "fixed")]
Whole = Annotated[int, Meta(gt=0)]


def converted(name: str, value: Any, kind: Any) -> Any:
    """`value` as the given type; UserError for one of another type, or beyond its limits."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, place = str(error).partition(" - at `$")
        for option in place.partition("[")[0].strip("`").split(".")[1:]:  # fields of dataclasses
            name, value = f"{name}.{option}".lstrip("."), value[option]
        for pattern, words in IN_WORDS.items():
            what = what.replace(pattern, words)
        what = re.sub(r"str matching regex '\^\((.+)\)\$'", r"\1", what.replace("`", "")).replace(
            "|", " or "
        )
        typed = shortened(value if isinstance(value, str) else literal(value))
        raise UserError(f"{name}={typed}: {what[:1].lower()}{what[1:]}") from None
