"""Data drawn from a definition instead of read from files; `options` give the number of rows and the seed."""

import numpy as np

from dlmexp.config import DatasetConfig
from dlmexp.data.parsers.published import FLIGHT_FACTS
from dlmexp.data.parsers.registry import Parsed, generator
from dlmexp.errors import UserError

MOST_ROWS = 20_000_000
SHIFT = 2 / np.sqrt(20)
"""Breiman's a, the distance of each class mean from the origin in every coordinate."""


def _size_and_rng(spec: DatasetConfig) -> tuple[int, np.random.Generator]:
    rows, seed = spec.options.get("rows", 0), spec.options.get("seed", 0)
    for name, value, least, most in (("rows", rows, 1, MOST_ROWS), ("seed", seed, 0, 2**63)):
        if type(value) is not int or not least <= value <= most:
            raise UserError(f"dataset '{spec.name}': options.{name}={value} is not a whole number, {least} to {most}")
    return rows, np.random.Generator(np.random.PCG64(seed))


@generator("twonorm")
def twonorm(spec: DatasetConfig) -> Parsed:
    """Breiman's twonorm, 20 features: the classes are N(+a 1, I) and N(-a 1, I), a = 2 / sqrt(20)."""
    rows, rng = _size_and_rng(spec)
    y = rng.integers(0, 2, rows).astype(np.float64)
    X = rng.standard_normal((rows, 20)) + SHIFT * (2 * y - 1)[:, None]
    return Parsed(X, y)


@generator("ringnorm")
def ringnorm(spec: DatasetConfig) -> Parsed:
    """Breiman's ringnorm, 20 features: class 0 is N(0, 4 I), class 1 is N(a 1, I), a = 2 / sqrt(20)."""
    rows, rng = _size_and_rng(spec)
    y = rng.integers(0, 2, rows).astype(np.float64)
    X = rng.standard_normal((rows, 20)) * (2.0 - y)[:, None] + SHIFT * y[:, None]
    return Parsed(X, y)


@generator("song_like")
def song_like(spec: DatasetConfig) -> Parsed:
    """Synthetic data of the shape of song, for load tests: 90 correlated features, a year that depends on them."""
    rows, rng = _size_and_rng(spec)
    X = rng.standard_normal((rows, 90))
    X[:, 1:] += 0.5 * X[:, :1]
    X *= np.linspace(6.0, 200.0, 90)
    signal = np.tanh(X[:, 0] / 6.0) + 0.5 * np.sin(X[:, 1] / X[:, 1].std())
    year = np.clip(np.round(1998 + 8 * signal + 6 * rng.standard_normal(rows)), 1922, 2011)
    return Parsed(X, year)


@generator("airline_like")
def airline_like(spec: DatasetConfig) -> Parsed:
    """Synthetic data of the shape of airline, for load tests: the eight features in their ranges, labels that depend on
    them."""
    rows, rng = _size_and_rng(spec)
    month, day, weekday = rng.integers(1, 5, rows), rng.integers(1, 32, rows), rng.integers(1, 8, rows)
    departure = rng.integers(0, 1440, rows)
    distance = rng.integers(80, 2600, rows)
    air = np.maximum(18, distance // 8 + rng.integers(5, 40, rows))
    arrival = (departure + air) % 1440
    age = rng.integers(0, 30, rows)
    columns = (month, day, weekday, _clock(departure), _clock(arrival), air, distance, age)
    X = np.column_stack(columns).astype(np.float64)
    late = np.sin(departure / 1440 * 2 * np.pi + 3.5) + 0.3 * (air / (distance / 8 + 22) - 1) - 0.1
    return Parsed(X, (late + rng.standard_normal(rows) > 0).astype(np.float64), FLIGHT_FACTS)


def _clock(minutes: np.ndarray) -> np.ndarray:
    """Minutes since midnight as hhmm, the format of times in the airline data; midnight is 2400."""
    clock = minutes // 60 * 100 + minutes % 60
    return np.where(clock == 0, 2400, clock)
