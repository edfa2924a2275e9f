"""A fixed number of cases of the fuzz suite; `scripts/fuzz MINUTES` runs any number, with other seeds."""

import pytest

from tests.support import fuzz
from tests.support.fuzz_targets import IN_CI

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture(scope="module", autouse=True)
def warm():
    fuzz.warm_up()


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_what_is_spoiled_ends_in_a_sentence(target):
    wrong = fuzz.cases(target, range(IN_CI[target]))
    assert not wrong, "\n".join(wrong)


def test_the_oracle_sees_what_goes_wrong(monkeypatch):
    """An exception, a file outside, a record that is harmed, memory without bound, and a process that dies."""
    import os
    import signal

    def outside(chance, folder):
        (folder.parent / "outside" / "file").write_text("yours")

    def harmed(chance, folder):
        next((folder / "records" / "banana").glob("*.json")).write_text("")

    def memory(chance, folder):
        bytearray(2 * fuzz.MEMORY)

    def dies(chance, folder):
        os.kill(os.getpid(), signal.SIGKILL)

    bad = {"outside": outside, "harmed": harmed, "memory": memory, "dies": dies, "exception": lambda *_: 1 / 0}
    for name, function in bad.items():
        monkeypatch.setitem(fuzz.TARGETS, name, function)
        assert len(fuzz.cases(name, range(1))) == 1, name
