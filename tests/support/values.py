"""What a program wrote, compared by value: machines differ in the last digits of their sums and
special functions."""

import re

import pytest

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d{1,3})?|e[+-]?\d{1,3})(?![\w.]*\w)")


def same_text(found: str, expected: str, absolute: float = 0.0, relative: float = 0.0) -> bool:
    """Whether the words are the same, and decimal numbers but for one unit of their last digit, or
    by so much."""
    numbers = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=False)
    return NUMBER.split(found) == NUMBER.split(expected) and all(
        float(one) == pytest.approx(float(other), rel=relative, abs=absolute or 1.01 * _unit(other))
        for one, other in numbers
    )


def _unit(number: str) -> float:
    """The unit of its last digit: 0.01 for 3.14, 1e-7 for 2.5e-6."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
