"""Downloads one file over HTTP: resumes interrupted downloads, retries transient errors, detects incomplete files."""

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
MAX_BYTES = 1 << 33
TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)

ProgressCallback = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in total if known)."""


class _Interrupted(Exception):
    """The transfer ended early; the bytes received so far are kept."""


TRANSIENT_ERRORS = (
    _Interrupted,
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)
"""Errors worth a retry; any other OSError is one of the local disk."""


def download(
    url: str,
    part: Path,
    progress: ProgressCallback,
    will_verify: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Downloads `url` to the file `part`, and resumes if `part` already holds the beginning.

    Resumes only if the server can confirm that its file has not changed, or if the caller will verify a checksum
    (`will_verify`). Transient errors are retried after 1, 2, 4 ... seconds, until five attempts in a row have received
    nothing. Raises UserError then, and at once for any other HTTP error.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    while True:
        before = _size(part)
        try:
            _transfer(url, part, progress, will_verify)
            return
        except TRANSIENT_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in TRANSIENT_STATUS:
                raise UserError(f"{url} answered {error.code} {error.reason}") from error
            reason = error.reason if isinstance(error, urllib.error.URLError) else error or type(error).__name__
        except OSError as error:
            raise UserError(f"{part} could not be written: {error.strerror}") from error
        failures = 0 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            raise UserError(f"{url}: {reason}; {_size(part)} bytes are kept, the same command resumes from there")
        sleep(2.0 ** max(failures - 1, 0))


def _transfer(url: str, part: Path, progress: ProgressCallback, will_verify: bool) -> None:
    have, validator = _size(part), _read_validator(part)
    request = urllib.request.Request(url, headers={"User-Agent": "dlmexp", "Accept-Encoding": "identity"})
    if have and (validator or will_verify):
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
        raise _Interrupted("the file on the server changed during the download") from None
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        _write_validator(part, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        with part.open("ab" if resumed else "wb") as out:
            _copy(response, out.write, start, total, progress)
            out.flush()
            os.fsync(out.fileno())


def _copy(
    response: http.client.HTTPResponse,
    write: Callable[[bytes], object],
    done: int,
    total: int | None,
    progress: ProgressCallback,
) -> None:
    if total is not None and total > MAX_BYTES:
        raise UserError(f"{response.url} would be {total} bytes, more than {MAX_BYTES}: refused")
    progress(done, total)
    while chunk := response.read(CHUNK):
        write(chunk)
        done += len(chunk)
        progress(done, total)
        if done > MAX_BYTES:
            raise UserError(f"{response.url} sent more than {MAX_BYTES} bytes: refused")
    if total is not None and done < total:
        raise _Interrupted(f"the connection ended after {done} of {total} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _validator_file(part: Path) -> Path:
    return part.with_name(f".{part.name}.json")


def _write_validator(part: Path, etag: str | None, modified: str | None) -> None:
    # A strong ETag, or else the date, lets the server confirm that its file has not changed.
    validator = etag if etag and not etag.startswith("W/") else modified
    write_json(_validator_file(part), {"validator": validator})


def _read_validator(part: Path) -> str | None:
    try:
        return json.loads(_validator_file(part).read_text())["validator"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
