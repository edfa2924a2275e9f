"""Servers whose answers ended in a traceback, or without a word: each ends in one sentence now."""

import socket
from pathlib import Path

import pytest
from dlmexp.data.download import download

from dlmexp.errors import Unreadable, UserError
from tests.support.http_server import Behaviour, serving
from tests.support.raw_server import answering


def silent(done: int, total: int | None) -> None:
    pass


def fetched(tmp_path: Path, *headers: str, body: bytes = b"x" * 10) -> None:
    """Downloads from a server that answers with these headers, whatever they are."""
    head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode("latin-1")
    with answering(head + body) as url:
        download(url, tmp_path / "part", silent, sleep=[].append)


@pytest.mark.parametrize("length", ["²", "ten", "-5", "0x10", "1e3", ""])
def test_a_length_that_is_no_number_counts_as_none(tmp_path, length):
    fetched(tmp_path, f"Content-Length: {length}", "Connection: close")
    assert (tmp_path / "part").read_bytes() == b"x" * 10


@pytest.mark.parametrize("length", ["9" * 5000, str(1 << 60)])
def test_a_length_beyond_all_is_refused(tmp_path, length):
    with pytest.raises(Unreadable, match=r"more than .* refused"):
        fetched(tmp_path, f"Content-Length: {length}")


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "http://h:x/", "file:///etc/passwd",
                                 "http://a b/", "ftp://h/f", "http://h\n/", "http://h:99999999/"])  # fmt: skip
def test_an_address_that_is_none_is_refused_at_once(tmp_path, url):
    pauses = []
    with pytest.raises(UserError, match=r"is no address of a file|is there a network"):
        download(url, tmp_path / "part", silent, sleep=pauses.append)
    assert not pauses


def test_a_redirection_to_a_place_that_is_none_is_refused(tmp_path):
    for place in ("file:///etc/passwd", "http://[x", "ftp://127.0.0.1:1/f"):
        with pytest.raises(UserError):
            answering_redirect(tmp_path, place)


def answering_redirect(tmp_path, place: str) -> None:
    with serving(Behaviour(redirect=place)) as url:
        download(url, tmp_path / "part", silent, sleep=lambda seconds: None)


def test_a_refused_connection_and_an_unknown_host_are_final(tmp_path, monkeypatch):
    pauses = []
    with serving(Behaviour()) as url:
        pass
    with pytest.raises(Unreadable, match="Connection refused; is the address right"):
        download(url, tmp_path / "part", silent, sleep=pauses.append)

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Unreadable, match="Name or service not known; is the address right"):
        download("http://nowhere.invalid/f", tmp_path / "part", silent, sleep=pauses.append)
    assert not pauses


def test_what_may_pass_is_tried_again_and_said(tmp_path, monkeypatch, caplog):
    def later(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", later)
    pauses = []
    with pytest.raises(UserError, match="Temporary failure in name resolution, 5 times in a row"):
        download("http://nowhere.invalid/f", tmp_path / "part", silent, sleep=pauses.append)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert "attempt 2 of 5 follows in 1 s" in caplog.text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n", "the answer is damaged"),
        (b"302 F\r\nLocation: ftp://127.0.0.1:9/x\r\nContent-Length: 0\r\n\r\n", "only http and https"),
        (b"302 F\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"100 Continue\r\n\r\n" + b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "'100 Continue' without end"),
    ],
)
def test_answers_that_lead_nowhere(tmp_path, answer, said):
    with answering(b"HTTP/1.1 " + answer) as url, pytest.raises(Unreadable, match=said) as refused:
        download(url, tmp_path / "x", silent, will_verify=False)
    assert "\n" not in str(refused.value)
