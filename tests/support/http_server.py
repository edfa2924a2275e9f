"""A real HTTP server on this machine that misbehaves on request."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BODY = bytes(range(256)) * 4096  # 1 MiB, four chunks


@dataclass
class Behaviour:
    """What the server does; `cut` lists after how many bytes each answer in turn breaks off."""

    body: bytes = BODY
    ranges: bool = True
    etag: str | None = '"v1"'
    modified: str | None = None
    status: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    redirect: str | None = None
    requested_ranges: list[str | None] = field(default_factory=list)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve `behaviour.body`; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            behaviour.requested_ranges.append(wanted)
            if behaviour.status:
                self.send_error(behaviour.status.pop(0))
                return
            if behaviour.redirect:
                self.send_response(302)
                self.send_header("Location", behaviour.redirect)
                self.end_headers()
                return
            if_range = self.headers.get("If-Range")
            start = 0
            if wanted and behaviour.ranges and if_range in (None, behaviour.etag, behaviour.modified):
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(behaviour.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(behaviour.body)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(behaviour.body) - 1}/{len(behaviour.body)}")
            self.send_header("Content-Length", str(len(behaviour.body) - start))
            for name, value in (("ETag", behaviour.etag), ("Last-Modified", behaviour.modified)):
                if value:
                    self.send_header(name, value)
            self.end_headers()
            until = behaviour.cut.pop(0) if behaviour.cut else len(behaviour.body)
            self.wfile.write(behaviour.body[start : start + until])

        def log_message(self, format, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/file"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
