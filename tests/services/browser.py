"""A real browser without a window, driven by its DevTools protocol through two pipes: no port, no driver, no library.

What is here: starting it, opening a page, and what it said meanwhile. Pages that are opened may load nothing: every
request that is made is noted.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0  # that one answer may take
# The browser looks for its pipes at 3 and 4.
_START = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def program() -> str | None:
    """The browser of this machine; None where it has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A running browser; `tab` opens a page."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._bytes, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What the browser answers. Raises RuntimeError for an error, TimeoutError where it does not answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(time.monotonic() + SECONDS)
            if answer.get("id") != number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._bytes:
            if not select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser does not answer (its exit code: {self._process.poll()})")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError(f"the browser is gone (its exit code: {self._process.poll()})")
            self._bytes += more
        text, self._bytes = self._bytes.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    @contextlib.contextmanager
    def tab(self, file: Path, *, width: int = 1600, dark: bool = False) -> Iterator[Tab]:
        """The page of a file once it says that its charts are drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        tab.call("Emulation.setEmulatedMedia", features=scheme)
        tab.call("Page.navigate", url=file.as_uri())
        tab.wait("document.documentElement.dataset.drawn === 'yes'")
        try:
            yield tab
        finally:
            self.call("Target.closeTarget", targetId=target)


class Tab:
    """One open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers for this page."""
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to, promises awaited. The page's own policy does not hold for it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true; each look lets the page draw a frame. Raises TimeoutError."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(RuntimeError):  # between two documents there is none to ask
                if self.value(f"new Promise((done) => setTimeout(() => done({condition}), 20))"):
                    return
        raise TimeoutError(f"never true: {condition}\n{self.complaints()}")

    def complaints(self) -> list[str]:
        """Uncaught errors, and what stands in the console as an error or a warning: policy violations do."""
        found = []
        for event in self._browser.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(params["exceptionDetails"])[:600])
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"])
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(json.dumps([one.get("value") for one in params["args"]]))
        return found

    def requests(self) -> list[str]:
        """Every address that the page asked for, its own file left out; what stands in the page itself is none."""
        sent = [event["params"]["request"]["url"] for event in self._browser.events
                if event.get("method") == "Network.requestWillBeSent"]  # fmt: skip
        return [url for url in sent[1:] if not url.startswith(("data:", "blob:"))]

    def press(self, key: str) -> None:
        """One key, down and up."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", key=key, windowsVirtualKeyCode=13)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """The page as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def printed(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


@contextlib.contextmanager
def started(path: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile; it is ended, whatever happened."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    given = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
    os.close(theirs_in)
    os.close(theirs_out)
    words = [sys.executable, "-c", _START, *map(str, given), path, f"--user-data-dir={profile}", *_FLAGS]
    process = subprocess.Popen(words, pass_fds=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for end in given:
        os.close(end)
    try:
        yield Browser(process, ours_out, ours_in)
    finally:
        os.close(ours_out)  # the browser ends where its pipe does
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_in)
