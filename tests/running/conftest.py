"""What several tests of the engine watch."""

import pytest


@pytest.fixture
def order(monkeypatch):
    """The flights in the order in which they begin."""
    from dlmexp.running.engine import Engine

    flights, plain = [], Engine.work

    def noting(self, flight):
        flights.append(flight)
        yield from plain(self, flight)

    monkeypatch.setattr(Engine, "work", noting)
    return flights
