"""Debian's Chromium through chromedriver's plain HTTP interface (W3C WebDriver): no further packages."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


class Browser:
    """One page in one window; `with Browser(profile) as browser`."""

    def __init__(self, driver: str, binary: str, profile: Path):
        quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen([driver, "--port=0"], **quiet)
        lines = (re.search(r"started successfully on port (\d+)", line) for line in self.process.stdout or ())
        self.root = f"http://127.0.0.1:{next(filter(None, lines))[1]}/session"
        self.opener = build_opener(ProxyHandler({}))
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.root += "/" + self._send("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # which waits for its end, and closes its output
            try:
                self._send("", method="DELETE")
            finally:
                self.process.terminate()

    def _send(self, path: str, body: dict | None = None, method: str = "POST") -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        with self.opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, path: Path) -> None:
        self._send("/url", {"url": path.as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a piece of JavaScript returns in the page."""
        return self._send("/execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int) -> None:
        self._send("/window/rect", {"width": width, "height": height})

    def log(self, kind: str) -> list[dict]:
        return self._send("/se/log", {"type": kind})
