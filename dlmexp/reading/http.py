"""One request over HTTP: what the server says is checked, and every error is either final or worth another attempt."""

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

from dlmexp.errors import Unreadable

TIMEOUT = 30.0
MAX_BYTES = 1 << 33
MAX_INTERIM = 20  # answers before the answer
TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)
FINAL_NAMES = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))  # there is no such host


class Interrupted(Exception):
    """The transfer ended early, for a reason that may pass."""


@dataclass(frozen=True)
class Answer:
    """What a server answers: its status, its headers, and how many bytes follow (None if it does not say)."""

    url: str
    status: int
    headers: http.client.HTTPMessage
    length: int | None
    body: IO[bytes]

    def read(self, size: int) -> bytes:
        """At most `size` of the bytes that follow; none at their end. Raises as `request` does."""
        with _network_errors(self.url):
            return self.body.read(size)


@contextmanager
def request(url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
    """The answer to a GET request. Raises `Unreadable` where another attempt could not help, else `Interrupted`."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it should begin with https:// and a host")
        parts.port  # noqa: B018 - raises ValueError if it is none
        asked = urllib.request.Request(url, headers={"User-Agent": "dlmexp", "Accept-Encoding": "identity", **headers})
    except ValueError as error:
        raise Unreadable(f"'{url}' is no address of a file: {error}") from error
    with _network_errors(url):
        response = _opened(asked, url)
    with response:
        yield Answer(url, response.status, response.headers, _length(response, url), response)


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    """Errors of a connection as `Unreadable` where another attempt could not help, else as `Interrupted`."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise Unreadable(f"{url}: the certificate of the server is not valid ({error.verify_message})") from error
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(_words(error) or type(error).__name__) from error
    except ValueError as error:  # http.client does not mind a chunk of -5 bytes until it reads it
        raise Unreadable(f"{url}: the answer is damaged ({error})") from error


class _Response(http.client.HTTPResponse):
    """http.client would read "100 Continue" without end."""

    _interim = 0

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # pyright: ignore[reportAttributeAccessIssue]
        self._interim += status == http.client.CONTINUE
        if self._interim > MAX_INTERIM:
            raise Unreadable(f"the server answers '{status} {reason.strip()}' without end")
        return version, status, reason


class _Http(http.client.HTTPConnection):
    response_class = _Response


class _Https(http.client.HTTPSConnection):
    response_class = _Response


class _OpensHttp(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Http, req)


class _OpensHttps(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Https, req)


class _OnlyHttp(urllib.request.HTTPRedirectHandler):
    """Redirections to ftp, which urllib would follow, are refused."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if urlsplit(newurl).scheme not in ("http", "https"):
            fp.close()
            raise Unreadable(f"{req.full_url} leads to {newurl}: only http and https addresses are followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opened(asked: urllib.request.Request, url: str) -> http.client.HTTPResponse:
    try:
        return urllib.request.build_opener(_OnlyHttp, _OpensHttp, _OpensHttps).open(asked, timeout=TIMEOUT)
    except (http.client.InvalidURL, ValueError) as error:
        raise Unreadable(f"'{url}' is no address of a file: {error}") from error
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the caller asked for a part that there is not
            return error  # pyright: ignore[reportReturnType]
        with error:
            said = f"{error.code} {' '.join(str(error.reason).split())}"
            if error.code in TRANSIENT_STATUS:
                raise Interrupted(f"it answered {said}") from error
            raise Unreadable(f"{url} answered {said}") from error
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise reason from error
        final = isinstance(reason, socket.gaierror) and reason.errno in FINAL_NAMES
        if final or isinstance(reason, ConnectionRefusedError | str):
            raise Unreadable(f"{url}: {_words(reason)}; is the address right, and is there a network here?") from error
        raise Interrupted(_words(reason)) from error


def _words(reason: object) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)


def _length(response: http.client.HTTPResponse, url: str) -> int | None:
    text = (response.headers.get("Content-Length") or "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > 18 or int(text) > MAX_BYTES:
        shown = text if len(text) < 30 else f"{text[:20]}... ({len(text)} digits)"
        raise Unreadable(f"{url} would be {shown} bytes, more than {MAX_BYTES}: refused")
    return int(text)
