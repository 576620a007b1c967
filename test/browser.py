"""A headless Chromium for tests of what people see; tests that want it are skipped where there is none."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip


def find_browser():
    """Return the path of a Chromium; skip the test where there is none."""
    pytest.importorskip("websockets.sync.client", reason="speaking with a browser needs the package websockets")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"there is no browser on this machine: none of {', '.join(NAMES)}")
    return path


@contextmanager
def open_page(url, folder, width=1200, height=900):
    """Open a page in a browser with a profile of its own in a folder; yields a :class:`Page`."""
    from websockets.sync.client import connect

    command = [find_browser(), *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            found = re.search(r"listening on (ws://\S+)", line)
            if found:
                break
        else:
            pytest.fail("the browser ended before it could be spoken with")
        with connect(found.group(1), max_size=2**26, proxy=None) as socket:
            yield Page(socket, url, width, height)
    finally:
        process.kill()
        process.communicate()


class Page:
    """One page, spoken with by Chromium's protocol."""

    def __init__(self, socket, url, width, height):
        self._socket, self._numbers, self._session = socket, itertools.count(1), None
        self.log = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, expression):
        """Return the value of an expression in JavaScript."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=30.0):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} is not true after {seconds} s; the page says {self.log}"
            time.sleep(0.05)

    def move(self, x, y, buttons=0):
        """Move the pointer, with or without its button held."""
        held = "left" if buttons else "none"
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, buttons=buttons, button=held)

    def screenshot(self, path):
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def print(self, path):
        """Write the page as PDF."""
        path.write_bytes(base64.b64decode(self._call("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def _call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=60.0))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        entry = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            self.log.append(entry["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.log.append(entry["exceptionDetails"].get("exception", {}).get("description", "exception"))
