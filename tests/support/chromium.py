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
        self.process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        port = next(
            m[1] for line in self.process.stdout if (m := re.search(r"started successfully on port (\d+)", line))
        )
        self.opener = build_opener(ProxyHandler({}))
        self.root = f"http://127.0.0.1:{port}"
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = self._send("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send(f"/session/{self.session}", method="DELETE")
        finally:
            self.process.terminate()
            self.process.wait(10)
            if self.process.stdout:
                self.process.stdout.close()

    def _send(self, path: str, body: dict | None = None, method: str = "POST") -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        with self.opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, path: Path) -> None:
        self._send(f"/session/{self.session}/url", {"url": path.as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a piece of JavaScript returns in the page."""
        return self._send(f"/session/{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int) -> None:
        self._send(f"/session/{self.session}/window/rect", {"width": width, "height": height})

    def log(self, kind: str) -> list[dict]:
        return self._send(f"/session/{self.session}/se/log", {"type": kind})

    def screenshot(self) -> str:
        """A PNG in base64."""
        return self._send(f"/session/{self.session}/screenshot", method="GET")
