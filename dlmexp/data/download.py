"""Downloads one file over HTTP: resumes interrupted downloads, retries transient errors, detects incomplete files."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from dlmexp.data.checksums import write_json
from dlmexp.errors import Unreadable, UserError
from dlmexp.reading import http
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json

CHUNK = 1 << 18
ATTEMPTS = 5
log = logging.getLogger(__name__)

ProgressCallback = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in total if known)."""


def download(
    url: str,
    part: Path,
    progress: ProgressCallback,
    will_verify: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Downloads `url` to the file `part`, and resumes if `part` already holds the beginning.

    Resumes only if the server can confirm that its file has not changed, or if the caller will verify a checksum
    (`will_verify`). Transient errors are retried after 1, 2, 4 ... seconds, each time with a message, until five
    attempts in a row have received nothing. Raises UserError then, and at once for an error that is final.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    while True:
        before = _size(part)
        try:
            _transfer(url, part, progress, will_verify)
            return
        except http.Interrupted as error:
            reason = error
        except OSError as error:
            raise UserError(f"{part} could not be written: {error.strerror}") from error
        failures = 0 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            kept = f"; {_size(part)} bytes are kept, the same command resumes from there" if _size(part) else ""
            raise UserError(f"{url}: {reason}, {ATTEMPTS} times in a row{kept}")
        pause = 2.0 ** max(failures - 1, 0)
        log.warning("%s: %s; attempt %d of %d follows in %.0f s", url, reason, failures + 1, ATTEMPTS, pause)
        sleep(pause)


def _transfer(url: str, part: Path, progress: ProgressCallback, will_verify: bool) -> None:
    have, validator = _size(part), _read_validator(part)
    headers = {}
    if have and (validator or will_verify):
        headers["Range"] = f"bytes={have}-"
    if have and validator:
        headers["If-Range"] = validator
    with http.request(url, headers) as answer:
        there = answer.headers.get("Content-Range") or ""
        if answer.status == 416:
            if there == f"bytes */{have}":
                return
            part.unlink(missing_ok=True)
            raise http.Interrupted("the file on the server changed during the download")
        resumed = answer.status == 206 and there.startswith(f"bytes {have}-")
        start = have if resumed else 0
        total = None if answer.length is None else start + answer.length
        _write_validator(part, answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
        with part.open("ab" if resumed else "wb") as out:
            _copy(answer, out.write, start, total, progress)
            out.flush()
            os.fsync(out.fileno())


def _copy(
    answer: http.Answer, write: Callable[[bytes], object], done: int, total: int | None, progress: ProgressCallback
) -> None:
    if total is not None and total > http.MAX_BYTES:
        raise Unreadable(f"{answer.url} would be {total} bytes, more than {http.MAX_BYTES}: refused")
    progress(done, total)
    while chunk := answer.read(CHUNK):
        write(chunk)
        done += len(chunk)
        progress(done, total)
        if done > http.MAX_BYTES:
            raise Unreadable(f"{answer.url} sent more than {http.MAX_BYTES} bytes: refused")
    if total is not None and done < total:
        raise http.Interrupted(f"the connection ended after {done} of {total} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _validator_file(part: Path) -> Path:
    return part.with_name(f".{part.name}.json")


def _write_validator(part: Path, etag: str | None, modified: str | None) -> None:
    # A strong ETag, or else the date, lets the server confirm that its file has not changed.
    validator = etag if etag and not etag.startswith("W/") else modified
    write_json(_validator_file(part), {"validator": validator})


def _read_validator(part: Path) -> str | None:
    """What was noted of the server's file. One with a line break could not be sent back as a header."""
    try:
        found = typed_json(content(_validator_file(part)), dict[str, str | None]).get("validator")
    except (OSError, Unreadable):
        return None
    return found if found and found.isprintable() and found.isascii() else None
