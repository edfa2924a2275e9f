import mpmath as mp
import pytest

from dlmexp.estimators.samplers.closed import truncated_normal
from tests.support.product_density import t


@pytest.mark.parametrize("alpha", [-1000.0, -60.0, -40.0, -36.5, -35.5, -20.0, -9.5, -3.0, 0.0, 5.0, 40.0])
@pytest.mark.parametrize("u", [1e-12, 0.02, 0.5, 0.97, 1 - 1e-12])
def test_quantiles_of_the_truncated_normal(alpha, u):
    got = truncated_normal(t([[u]]), t([alpha])).item()
    with mp.workdps(60):
        # The share of the tail beyond `got` must be u; in the far tail by its asymptotic series.
        def log_tail(x):
            x = mp.mpf(x)
            return (
                mp.log(mp.ncdf(-x))
                if x < 100
                else -x * x / 2 - mp.log(x) + mp.log1p(-1 / x**2 + 3 / x**4 - 15 / x**6) - mp.log(2 * mp.pi) / 2
            )

        share = float(log_tail(got) - log_tail(-alpha) - mp.log(u))
    assert got >= -alpha
    # Beyond -36 the documented error is 1e-6 of log u at worst; on the far right u itself has no more digits.
    assert share == pytest.approx(0, abs=3e-5 if alpha < -36 else 1e-9 / min(u, 1 - u) if alpha > 3 else 1e-9)
