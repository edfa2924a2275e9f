"""What a program wrote, compared by value: machines differ in the last digits of their sums and special functions."""

import re
from typing import Any

import pytest

# Published numbers have six significant digits or more: near the border of two roundings they are up to 1e-5 apart.
RELATIVE, ABSOLUTE = 2e-5, 1e-12
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d{1,3})?|e[+-]?\d{1,3})(?![\w.]*\w)")


def differences(found: Any, expected: Any, at: str = "") -> list[str]:
    """The places at which two values made of lists, dicts, texts and numbers differ: floats by more than rounding,
    decimal numbers in texts by more than one unit of their last digit, anything else at all."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        return [text for key in found for text in differences(found[key], expected[key], f"{at}/{key}")]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [
            text for i, pair in enumerate(zip(found, expected, strict=True)) for text in differences(*pair, f"{at}/{i}")
        ]
    if isinstance(found, str) and isinstance(expected, str):
        alike = same_text(found, expected)
    elif isinstance(found, float) or isinstance(expected, float):
        alike = found == pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE, nan_ok=True)
    else:
        alike = found == expected
    return [] if alike else [f"{at}: {found!r}, not {expected!r}"]


def same_text(found: str, expected: str) -> bool:
    """Whether the words are the same, and decimal numbers but for one unit of their last digit."""
    numbers = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=False)
    return NUMBER.split(found) == NUMBER.split(expected) and all(
        float(one) == pytest.approx(float(other), abs=1.01 * _unit(other)) for one, other in numbers
    )


def _unit(number: str) -> float:
    """Of its last digit: 0.01 for 3.14, 1e-7 for 2.5e-6."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
