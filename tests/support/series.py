"""The lines of a panel, as figures make them."""

from dlmexp.figures.panels import Panel
from dlmexp.figures.series import Series, panel_records, series_of
from dlmexp.records.results import Results
from dlmexp.records.wanted import ANY


def panel_series(panel: Panel, results: Results, parameterisation: str = "whitened") -> list[Series]:
    """The lines of a panel in their order, all of one setting."""
    return series_of(panel, results, parameterisation, panel_records(panel, results, parameterisation, ANY))
