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
    assert fuzz.cases(target, range(IN_CI[target]))
