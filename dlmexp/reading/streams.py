"""Tables in pieces: CSV, Parquet and Feather files that may be larger than memory.

Each function gives the names of all columns, and an iterator over the rows with the wanted ones of them. A piece has a
bounded size, whatever the file claims; the limits on columns are those of `tables`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw
from dlmexp.reading.arrow_files import check_claim, open_feather, open_parquet, plain
from dlmexp.reading.files import GIB
from dlmexp.reading.tables import MISSING, check_columns, check_header, translated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

BLOCK_BYTES = 1 << 22  # of a CSV file, read at once
BLOCK_ROWS = 1 << 16  # of a Parquet file
MAX_STREAM_BYTES = 4096 * GIB  # that a gzipped file may unfold to, piece by piece

Pieces = tuple[list[str], Iterator["pa.RecordBatch"]]


def csv_pieces(path: Path, wanted: Sequence[str], sep: str = ",", missing: Sequence[str] = ()) -> Pieces:
    """A text file with a header, in UTF-8, perhaps gzipped. Values are text (a type that is guessed from the first
    piece may not fit the next), null where missing; `missing` are further words for that."""
    import pyarrow as pa
    from pyarrow import csv

    @contextmanager
    def opened(convert: "csv.ConvertOptions") -> Iterator["csv.CSVStreamingReader"]:
        parse = csv.ParseOptions(delimiter=sep, newlines_in_values=True)
        read = csv.ReadOptions(block_size=BLOCK_BYTES)
        with (
            _opened_text(path) as stream,
            translated(f"{path} is not a csv file with named columns"),
            csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader,
        ):
            yield reader

    check_header(path, sep, MAX_STREAM_BYTES)
    with opened(csv.ConvertOptions()) as header:
        try:
            names = list(header.schema.names)
        except UnicodeDecodeError:
            raise Unreadable(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8") from None
    present = [name for name in wanted if name in names]
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in present},
        include_columns=present,
        strings_can_be_null=True,
        null_values=[*MISSING, *missing],
    )

    def pieces() -> Iterator["pa.RecordBatch"]:
        with opened(convert) as reader:
            yield from reader

    return names, pieces()


@contextmanager
def _opened_text(path: Path) -> Iterator[Any]:
    """A plain file is opened by Arrow: its threads read ahead, and one that were in a read of Python's when the program
    ends, after an error say, would abort it."""
    import pyarrow as pa

    if path.suffix.lower() == ".gz":
        with open_raw(path, limit=MAX_STREAM_BYTES) as stream:
            yield stream
    else:
        with pa.OSFile(str(path)) as stream:
            yield stream


def parquet_pieces(path: Path, wanted: Sequence[str]) -> Pieces:
    """A Parquet file; what its groups of rows claim to hold is checked before one is unfolded."""
    problem = f"{path} is not a parquet file with named columns"
    with translated(problem), open_parquet(path) as file:
        about, names = file.metadata, list(file.schema_arrow.names)
        check_columns(path, about.num_columns)
        check_claim(path, max((about.row_group(k).total_byte_size for k in range(about.num_row_groups)), default=0))

    def pieces() -> Iterator["pa.RecordBatch"]:
        with translated(problem), open_parquet(path) as file:
            for piece in file.iter_batches(batch_size=BLOCK_ROWS, columns=[name for name in wanted if name in names]):
                piece.validate(full=True)
                yield plain(path, piece)

    return names, pieces()


def feather_pieces(path: Path, wanted: Sequence[str]) -> Pieces:
    """A Feather file, in the pieces that it was written in."""
    problem = f"{path} is not a feather file with named columns"
    with translated(problem), open_feather(path, whole=False) as file:
        names = list(file.schema.names)
        check_columns(path, len(names))

    def pieces() -> Iterator["pa.RecordBatch"]:
        with translated(problem), open_feather(path, whole=False) as file:
            for piece in file:
                piece.validate(full=True)
                yield plain(path, piece.select([name for name in wanted if names.count(name) == 1]))

    return names, pieces()
