"""One file per raw format; importing this package fills the table of loaders."""

from dlmexp.data.parsers import airline, california, delimited, drawn, flights, matlab, pol, table  # noqa: F401
