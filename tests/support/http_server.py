"""HTTP servers on this machine that misbehave on request."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def _listening(answer: Callable[[], bytes]) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.recv(65536)
                connection.sendall(answer())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/file"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def answering(data: bytes) -> contextlib.AbstractContextManager[str]:
    """A server that gives the same bytes to everybody who connects, whatever they are; its address."""
    return _listening(lambda: data)


def serving(body: bytes, *errors: int) -> contextlib.AbstractContextManager[str]:
    """A server that answers with these `errors` first, then with the file; its address."""
    left = list(errors)

    def answer() -> bytes:
        status, content = (left.pop(0), b"") if left else (200, body)
        head = f"HTTP/1.1 {status} status\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        return head.encode() + content

    return _listening(answer)
