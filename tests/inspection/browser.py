"""Chromium without a window, driven by its DevTools protocol through aiohttp.

It needs no package that the tests do not have: selenium is in the `full` extra only.
"""

import asyncio
import base64
import pathlib
import shutil
import subprocess
import time

import pytest

PATIENCE = 60.0  # seconds, on a busy machine


class Browser:
    """One page of a browser.

    Args:
        directory: An empty folder for its profile.

    Attributes:
        problems: What went wrong in the page: console errors, exceptions, blocked requests.
        requests: The addresses that the page asked for.
    """

    def __init__(self, directory: pathlib.Path):
        aiohttp = pytest.importorskip("aiohttp", reason="needs aiohttp")
        chromium = shutil.which("chromium")
        if chromium is None:
            pytest.skip("needs a browser: apt-get install chromium")
        self.problems, self.requests, self._answers, self._number = [], [], {}, 0
        flags = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
        flags += ("--remote-debugging-port=0", f"--user-data-dir={directory}", "--hide-scrollbars")
        self._process = subprocess.Popen(
            [chromium, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._loop = asyncio.new_event_loop()
        port_file = directory / "DevToolsActivePort"
        until(lambda: port_file.exists() and port_file.read_text().count("\n") >= 1)
        port = port_file.read_text().split()[0]
        self._loop.run_until_complete(self._connect(aiohttp, port))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    async def _connect(self, aiohttp, port):
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as response:
            pages = await response.json()
        address = next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=1 << 28)

    def command(self, method: str, **parameters):
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        return self._loop.run_until_complete(self._answer(message))

    async def _answer(self, message):
        await self._socket.send_json(message)
        while True:
            received = await asyncio.wait_for(self._socket.receive_json(), PATIENCE)
            if received.get("id") == message["id"]:
                assert "error" not in received, received
                return received["result"]
            self._note(received.get("method"), received.get("params"))

    def _note(self, method, event):
        if method == "Runtime.exceptionThrown":
            self.problems.append(event["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            self.problems.append(event["args"])
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    def open(self, address: str) -> None:
        """Opens a page and waits until it is loaded."""
        self.problems.clear()
        self.requests.clear()
        self.command("Page.navigate", url=address)
        # After the change of pages, so that the old one is not taken for the new one.
        until(lambda: self.value("location.href + document.readyState") == f"{address}complete")

    def value(self, expression: str):
        """Returns the value of an expression in the page; a promise is awaited."""
        result = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str):
        """Waits until an expression is true in the page, and returns its value."""
        return until(lambda: self.value(expression))

    def key(self, key: str) -> None:
        """Presses and releases a key, such as "Tab", "Enter", "ArrowDown" or "a"."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def look(self, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Sets the size of the window and the colours of the system."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: pathlib.Path) -> None:
        """Writes what the window shows as a PNG file."""
        data = self.command("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Ends the browser."""
        self._loop.run_until_complete(self._session.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(PATIENCE)


def until(condition):
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return value
