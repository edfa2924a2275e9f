"""One file over HTTP: resumed where it stopped, tried again after a fault, never mistaken for whole when it is not."""

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from dlmexp.data.checksums import write_json
from dlmexp.errors import UserError

CHUNK = 1 << 18
ATTEMPTS = 5
TIMEOUT = 30.0
LARGEST = 1 << 33
PASSING = (408, 425, 429, 500, 502, 503, 504)

Report = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all if known)."""


class _Interrupted(Exception):
    """The transfer stopped before its end; what arrived is kept."""


FAULTS = (
    _Interrupted,
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)
"""Faults that may pass; any other OSError comes from our own disk."""


def download(
    url: str, part: Path, report: Report, verified: bool = False, pause: Callable[[float], None] = time.sleep
) -> None:
    """Brings `url` to the file `part`, going on from what is there already.

    Goes on only if the server can tell that its file is still the same, or if the caller will verify a checksum.
    A fault that may pass is tried again, after 1, 2, 4 ... seconds, as long as no five tries in a row got nothing.
    Raises UserError when that happens, or at once when the server refuses.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    fruitless = 0
    while True:
        before = _size(part)
        try:
            _transfer(url, part, report, verified)
            return
        except FAULTS as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in PASSING:
                raise UserError(f"{url} answered {error.code} {error.reason}") from error
            fault = error.reason if isinstance(error, urllib.error.URLError) else error or type(error).__name__
        except OSError as error:
            raise UserError(f"{part} could not be written: {error.strerror}") from error
        fruitless = 0 if _size(part) > before else fruitless + 1
        if fruitless == ATTEMPTS:
            raise UserError(f"{url}: {fault}; {_size(part)} bytes are kept, the same command goes on from there")
        pause(2.0 ** max(fruitless - 1, 0))


def _transfer(url: str, part: Path, report: Report, verified: bool) -> None:
    have, validator = _size(part), _validator(part)
    request = urllib.request.Request(url, headers={"User-Agent": "dlmexp", "Accept-Encoding": "identity"})
    if have and (validator or verified):
        request.add_header("Range", f"bytes={have}-")
    if have and validator:
        request.add_header("If-Range", validator)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:
                raise
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return
        part.unlink(missing_ok=True)
        raise _Interrupted("the server has another file than the one begun") from None
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        _remember(part, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        with part.open("ab" if resumed else "wb") as out:
            _copy(response, out.write, start, total, report)
            out.flush()
            os.fsync(out.fileno())


def _copy(
    response: http.client.HTTPResponse, write: Callable[[bytes], object], done: int, total: int | None, report: Report
) -> None:
    if total is not None and total > LARGEST:
        raise UserError(f"{response.url} would be {total} bytes, more than {LARGEST}: refused")
    report(done, total)
    while block := response.read(CHUNK):
        write(block)
        done += len(block)
        report(done, total)
        if done > LARGEST:
            raise UserError(f"{response.url} sent more than {LARGEST} bytes: refused")
    if total is not None and done < total:
        raise _Interrupted(f"the connection ended after {done} of {total} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _beside(part: Path) -> Path:
    return part.with_name(f".{part.name}.json")


def _remember(part: Path, etag: str | None, modified: str | None) -> None:
    # Only a strong ETag, or else the date, lets the server tell that the rest belongs to what we have.
    validator = etag if etag and not etag.startswith("W/") else modified
    write_json(_beside(part), {"validator": validator})


def _validator(part: Path) -> str | None:
    try:
        return json.loads(_beside(part).read_text())["validator"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
