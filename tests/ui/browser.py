"""A headless Chromium that is driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_PATIENCE = 60.0
"""Seconds for the browser to start or to answer; the machine may be busy."""
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_KEYS: Mapping[str, Mapping[str, Any]] = {
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "Escape": {"windowsVirtualKeyCode": 27},
    "Tab": {"windowsVirtualKeyCode": 9},
    "ArrowDown": {"windowsVirtualKeyCode": 40},
    "ArrowUp": {"windowsVirtualKeyCode": 38},
    "ArrowLeft": {"windowsVirtualKeyCode": 37},
    "ArrowRight": {"windowsVirtualKeyCode": 39},
}


def binary() -> str:
    """The browser to run: what `CHROMIUM` names, or what is installed. Skips without."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("NO CHROMIUM: /ui is not tested in a browser; install chromium (apt-get install chromium)")
    return found


class Page:
    """One tab. It collects what the console says, what the page throws, and every address that is asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                waiting = self._answers.pop(said["id"])
                if not waiting.done():
                    waiting.set_result(said)
            else:
                self._heard(said["method"], said["params"])

    def _heard(self, method: str, params: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])

    async def call(self, method: str, **params: Any) -> Any:
        """A command of the protocol. Raises `AssertionError` where the browser refuses it."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_PATIENCE):
            said = await self._answers[number]
        assert "error" not in said, (method, said)
        return said["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        said = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        for _ in range(int(_PATIENCE / 0.05)):
            if await self.run(f"!!({script})"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{script} did not come true; the page says: {await self.text()}")

    async def text(self, selector: str = "body") -> str:
        """The text that is to be seen of the first element that fits."""
        return str(await self.run(f"document.querySelector({json.dumps(selector)})?.innerText"))

    async def sees(self, selector: str) -> bool:
        """Whether the first element that fits is to be seen."""
        return bool(await self.run(f"!!document.querySelector({json.dumps(selector)})?.checkVisibility()"))

    async def count(self, selector: str) -> int:
        """The number of elements that fit."""
        return int(await self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    async def texts(self, selector: str) -> list[str]:
        """The text of each element that fits."""
        return list(
            await self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.innerText)")
        )

    async def shows(self, selector: str, text: str = "") -> None:
        """Wait until there is an element that fits, with this text in it."""
        await self.until(
            f"document.querySelector({json.dumps(selector)})?.innerText?.includes({json.dumps(text)}) ?? false"
        )

    async def focus(self, selector: str) -> None:
        """Put the focus on the first element that fits."""
        await self.run(f"document.querySelector({json.dumps(selector)}).focus()")

    async def push(self, selector: str, text: str = "") -> None:
        """Click, without a mouse, the first element that fits and has this text in it."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})].find(e => e.innerText.includes({json.dumps(text)}))"
        await self.run(f"{found}.click()")

    async def write(self, text: str, area: int) -> None:
        """Replace all text of one of the text areas."""
        await self.run(f"(area => {{ area.focus(); area.select(); }})(document.querySelectorAll('textarea')[{area}])")
        await self.type(text)

    async def open(self, url: str) -> None:
        """Go there."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def type(self, text: str) -> None:
        """Type where the focus is."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press and release a key."""
        fields = _KEYS.get(key, {"text": key, "windowsVirtualKeyCode": ord(key.upper()[0])})
        code = key if key in _KEYS else {"/": "Slash"}.get(key, f"Key{key.upper()}")
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, **fields)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)

    async def click(self, selector: str) -> None:
        """Click in the middle of the first element that fits, as a mouse does."""
        place = await self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    async def sized(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be a screen of this size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, name: str) -> None:
        """Save what is to be seen in the folder that `PICTURES` names, if it does."""
        folder = os.environ.get("PICTURES")
        if folder:
            shot = await self.call("Page.captureScreenshot", format="png")
            _save(Path(folder, f"{name}.png"), base64.b64decode(shot["data"]))


def _save(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class Desk:
    """A browser in front of a server."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base

    def is_sound(self, *but: str) -> None:
        """Raises `AssertionError` if anything ran, was asked of another server, or was complained of."""
        assert self.page.dialogs == []
        assert [url for url in self.page.asked if not url.startswith((self.base, "about:"))] == []
        assert [each for each in self.page.complaints if not any(known in each for known in but)] == []


@asynccontextmanager
async def browser() -> AsyncGenerator[Page, None]:
    """A running browser with one empty tab, and nothing of any earlier one."""
    # what the browser still writes while it ends must not fail the test
    with tempfile.TemporaryDirectory(prefix="penstock-ui-", ignore_cleanup_errors=True) as folder:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"]
        options += ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
        if os.geteuid() == 0:  # Chromium's sandbox does not work for root; it sees our own page only
            options.append("--no-sandbox")
        process = await asyncio.create_subprocess_exec(
            binary(),
            *options,
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
            start_new_session=True,
        )
        try:
            async with aiohttp.ClientSession() as http, http.ws_connect(await _tab(Path(folder), http)) as socket:
                page = Page(socket)
                listening = asyncio.ensure_future(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                yield page
                listening.cancel()
                await asyncio.wait([listening])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
            await process.wait()


async def _tab(folder: Path, http: aiohttp.ClientSession) -> str:
    """The address of the one tab."""
    said = folder / "DevToolsActivePort"
    async with asyncio.timeout(_PATIENCE):
        while not (said.exists() and "\n" in said.read_text()):
            await asyncio.sleep(0.05)
        port = said.read_text().split("\n")[0]
        while True:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                for target in await answer.json():
                    if target["type"] == "page":
                        return str(target["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
