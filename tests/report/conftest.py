"""A report on a table with something of everything, and hostile names."""

import pytest

from dlmexp.report import page
from tests.support.tidy import Made, fits

NAME = "<script>document.title='owned'<script>"
REASON = "<img src=x onerror=\"document.title='owned'\"> & NaN"
SIZES = (100, 200, 500, 1000, 2000)


@pytest.fixture(scope="session")
def made() -> Made:
    rows = []
    for protocol, dlm in (("paper", 0.2), ("released", 0.7)):
        for dataset in ("banana", "ringnorm", "sarcos_test"):
            for method, mean in (("elbo", 0.5), ("beta_elbo", 0.4), ("joint_log_dlm", dlm), ("fixed_log_dlm", dlm)):
                rows += fits(dataset, method, mean, sizes=SIZES, protocol=protocol, command=f"dlmexp run {protocol}")
    rows += fits(NAME, "elbo", 0.3, sizes=(100,), seeds=2)
    rows += fits("thyroid", "elbo", 0.3, sizes=(100,), seeds=7, status="failed", reason=REASON)
    return Made(rows)


@pytest.fixture(scope="session")
def html(made: Made) -> str:
    """The page, with one small picture in place of all figures."""
    from matplotlib.figure import Figure

    canvas = Figure((2, 1))
    canvas.subplots().plot([0, 1])
    with pytest.MonkeyPatch.context() as patch:
        about = {"title": "A title", "caption": f"About {NAME}.", "notes": ["a note"], "commands": ["dlmexp plot"]}
        pictures = [about | {"id": name, "source": page.source(canvas)} for name in ("selection", "class-log")]
        patch.setattr(page, "pictures", lambda results, column: pictures)
        return page.page(made)  # pyright: ignore[reportArgumentType]
