"""Downloads against a real HTTP server on this machine that misbehaves on request."""

import errno
from email.utils import formatdate
from http.client import HTTPResponse

import pytest
from dlmexp.data.download import download

from dlmexp.data import download as module
from dlmexp.errors import UserError
from dlmexp.reading import http
from tests.support.http_server import BODY, Behaviour, serving


def fetched(tmp_path, behaviour: Behaviour, will_verify=False, pauses: list | None = None) -> bytes:
    pauses = [] if pauses is None else pauses
    with serving(behaviour) as url:
        download(url, tmp_path / "part", lambda done, total: None, will_verify, pauses.append)
    return (tmp_path / "part").read_bytes()


def test_download_of_a_file(tmp_path):
    seen = []
    with serving(Behaviour()) as url:
        download(url, tmp_path / "deep" / "part", lambda done, total: seen.append((done, total)))
    assert (tmp_path / "deep" / "part").read_bytes() == BODY
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))


@pytest.mark.parametrize(
    "behaviour", [Behaviour(cut=[300_000, 10]), Behaviour(cut=[300_000, 10], etag=None, modified=formatdate(0))]
)
def test_a_truncated_body_is_noticed_and_resumed(tmp_path, behaviour):
    pauses = []
    assert fetched(tmp_path, behaviour, pauses=pauses) == BODY
    assert behaviour.requested_ranges == [None, "bytes=300000-", "bytes=300010-"]
    assert pauses == [1.0, 1.0]


def test_the_download_of_an_earlier_process_is_resumed(tmp_path):
    first = Behaviour(cut=[500_000, *[0] * 5])
    with pytest.raises(UserError, match="500000 bytes are kept"):
        fetched(tmp_path, first)
    second = Behaviour()
    assert fetched(tmp_path, second) == BODY
    assert second.requested_ranges == ["bytes=500000-"]


def test_a_file_that_changed_is_downloaded_from_the_start(tmp_path):
    with pytest.raises(UserError):
        fetched(tmp_path, Behaviour(cut=[500_000, *[0] * 5]))
    assert fetched(tmp_path, Behaviour(body=b"new" * 1000, etag='"v2"')) == b"new" * 1000


def test_without_range_support_it_restarts(tmp_path):
    behaviour = Behaviour(ranges=False, cut=[300_000])
    assert fetched(tmp_path, behaviour) == BODY
    assert behaviour.requested_ranges == [None, "bytes=300000-"]


def test_without_a_validator_only_a_download_with_checksum_resumes(tmp_path):
    for will_verify, second in ((False, None), (True, "bytes=300000-")):
        behaviour = Behaviour(etag=None, cut=[300_000])
        assert fetched(tmp_path / str(will_verify), behaviour, will_verify) == BODY
        assert behaviour.requested_ranges == [None, second]


def test_a_weak_etag_is_no_validator(tmp_path):
    behaviour = Behaviour(etag='W/"v1"', cut=[300_000])
    assert fetched(tmp_path, behaviour) == BODY
    assert behaviour.requested_ranges == [None, None]


def test_a_finished_part_is_recognised(tmp_path):
    fetched(tmp_path, Behaviour())
    again = Behaviour()
    assert fetched(tmp_path, again) == BODY
    assert again.requested_ranges == [f"bytes={len(BODY)}-"]


def test_a_part_longer_than_the_file_is_replaced(tmp_path):
    fetched(tmp_path, Behaviour())
    short = Behaviour(body=b"short")
    assert fetched(tmp_path, short, will_verify=True) == b"short"
    assert short.requested_ranges == [f"bytes={len(BODY)}-", None]


def test_transient_errors_are_retried_with_growing_pauses(tmp_path):
    pauses = []
    assert fetched(tmp_path, Behaviour(status=[503, 500, 429, 502]), pauses=pauses) == BODY
    assert pauses == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("status", [404, 403, 410])
def test_other_http_errors_are_not_retried(tmp_path, status):
    behaviour = Behaviour(status=[status])
    with pytest.raises(UserError, match=f"answered {status}"):
        fetched(tmp_path, behaviour)
    assert len(behaviour.requested_ranges) == 1
    assert not (tmp_path / "part").exists()


def test_an_unreachable_server_is_an_error(tmp_path):
    with serving(Behaviour()) as url:
        pass
    with pytest.raises(UserError, match="refused"):
        download(url, tmp_path / "part", lambda done, total: None, sleep=lambda seconds: None)


def test_endless_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="more than 1000: refused"):
        fetched(tmp_path, Behaviour())


def test_a_full_disk_is_not_blamed_on_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_copy", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UserError, match="could not be written: No space left"):
        fetched(tmp_path, Behaviour())


def test_a_network_that_fails_in_between_is_not_blamed_on_the_disk(tmp_path, monkeypatch):
    body = HTTPResponse.read
    errors = [OSError(errno.EHOSTUNREACH, "No route to host"), OSError(errno.ENETDOWN, "Network is down")]

    def read(response: HTTPResponse, size: int | None = None) -> bytes:
        if errors:
            raise errors.pop()
        return body(response, size)

    monkeypatch.setattr(HTTPResponse, "read", read)
    pauses = []
    assert fetched(tmp_path, Behaviour(), pauses=pauses) == BODY
    assert pauses == [1.0, 2.0]
