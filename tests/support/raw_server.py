"""A server that gives the same bytes to everybody who connects, whatever they are."""

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def answering(data: bytes) -> Iterator[str]:
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
                connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/f"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
