"""Types with limits for settings, and the conversion that checks them.

msgspec checks the limits; OmegaConf sees only the plain types.
"""

import re
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from dlmexp.common.errors import UserError, shortened
from dlmexp.common.literals import literal

# cuda: the first GPU that CUDA sees; a process trains on that one only.
DEVICES = ("auto", "cpu", "cuda")


def one_of(*words: str, or_like: str = "") -> Meta:
    """Return the limit of a text that must be one of these words, or match the pattern `or_like`.

    OmegaConf refuses `Literal`, so the limit is a regular expression, which msgspec checks. The
    words are stored next to it, for `choices_of`.
    """
    patterns = [*words, or_like] if or_like else words
    return Meta(pattern=f"^({'|'.join(patterns)})$", extra={"choices": words})


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the words that `one_of` allows anywhere inside a type, such as a list of them."""
    if isinstance(kind, Meta):
        return (kind.extra or {}).get("choices", ())
    choices: list[str] = []
    for part in get_args(kind):
        choices += choices_of(part)
    return tuple(dict.fromkeys(choices))


# Regular expressions of settings that are text: numbers of folds (at least 2) and of iterations.
FOLDS_PATTERN = "[2-9]|[1-9][0-9]{1,5}"
ITERATIONS_PATTERN = "[1-9][0-9]{0,15}"
# Names inside a results folder that no experiment may have, because dlmexp uses them itself.
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
# The name of an experiment's folder in the results. `one_of` adds a `$`, which alone would accept a
# line break after the name. With `(?![^/])`, no character but `/` may follow, and `$` excludes `/`:
# the name ends where the text ends.
FOLDER_PATTERN = f"(?!({'|'.join(RESERVED)})$)[A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}(?![^/])"
_NAME_RULE = f"at most 100 letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}"
# Messages of msgspec contain these regular expressions; users get the words instead.
WORDS_FOR_PATTERN = {
    FOLDER_PATTERN: _NAME_RULE,
    ITERATIONS_PATTERN: "a number of iterations",
    FOLDS_PATTERN: "a number of folds",
}

Device = Annotated[str, one_of(*DEVICES)]
# When a fit is tested: at its end, after every epoch, or each time so many iterations have passed.
Evaluate = Annotated[str, one_of("end", "epoch", or_like=ITERATIONS_PATTERN)]
Filled = Meta(min_length=1)  # a text or a list that is not empty
FolderName = Annotated[str, one_of(or_like=FOLDER_PATTERN)]
# How beta is cross-validated: by a number of folds, a held-out part, or leaving one row out. Users
# may type a FoldingSetting; its "auto" becomes one of the others when cells are planned.
Folding = Annotated[str, one_of("holdout", "loo", or_like=FOLDS_PATTERN)]
FoldingSetting = Annotated[str, one_of("auto", "holdout", "loo", or_like=FOLDS_PATTERN)]
Parameterisation = Annotated[str, one_of("whitened", "unwhitened")]
Positive = Annotated[float, Meta(gt=0, le=1e300)]
Rate = Annotated[float, Meta(gt=0, le=10)]  # a learning rate
Ratio = Annotated[float, Meta(ge=1.01, le=1e300)]  # of a beta to the next smaller one
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
# joint: q and hyperparameters are trained on the objective; fixed: q alone is trained, with the
# hyperparameters of another fit.
Variant = Annotated[str, one_of("joint", "fixed")]
Whole = Annotated[int, Meta(gt=0, le=10**15)]  # a positive whole number
InducingCount = Whole | Annotated[str, one_of("auto")]  # a number, or chosen from the data
# The limit is low because training keeps the objective of each iteration in memory.
Iterations = Annotated[int, Meta(gt=0, le=10**7)]


def converted(name: str, value: Any, kind: Any) -> Any:
    """Return `value` as a type with limits.

    Args:
        name: the setting, for messages.
        value: what was typed.
        kind: the type.

    Raises:
        UserError: the value has another type, is beyond the limits, or is nested too deeply.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        # The message is "Expected `int`, got `str` - at `$.options.rows[0]`", for instance. Report
        # the setting `rows` of `options` with its value; a position such as [0] is left out.
        message, _, location = str(error).partition(" - at `$")
        path, _, _ = location.partition("[")
        _, *fields = path.strip("`").split(".")
        for field in fields:
            name = f"{name}.{field}".lstrip(".")
            value = value[field]
        typed = value if isinstance(value, str) else literal(value)
        raise UserError(f"{name}={shortened(typed)}: {_in_words(message)}") from None


def _in_words(message: str) -> str:
    """Return a message of msgspec with words in place of regular expressions."""
    for pattern, words in WORDS_FOR_PATTERN.items():
        message = message.replace(pattern, words)
    message = message.replace("`", "")
    # Expected str matching regex '^(joint|fixed)$'  ->  Expected joint or fixed
    message = re.sub(r"str matching regex '\^\((.+)\)\$'", r"\1", message)
    message = message.replace("|", " or ")
    return f"{message[:1].lower()}{message[1:]}"
