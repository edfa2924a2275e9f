"""HTTP servers on this machine that misbehave on request."""

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.request.settimeout(5)
            self.request.recv(65536)
            self.request.sendall(self.server.answer())  # pyright: ignore[reportAttributeAccessIssue]


@contextlib.contextmanager
def _listening(answer: Callable[[], bytes]) -> Iterator[str]:
    with socketserver.TCPServer(("127.0.0.1", 0), _Handler) as server:
        server.answer = answer  # pyright: ignore[reportAttributeAccessIssue]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/file"
        finally:
            server.shutdown()
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
