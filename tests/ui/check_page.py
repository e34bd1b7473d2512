"""`/ui` as operators use it: a real browser on a real proxy. `make test-ui`; skipped where there is no Chromium.

It is no part of the tests of every day: a browser is large, and starts in seconds.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.servers import Received, Upstream, proxy, send, upstream
from tests.ui.browser import Desk, Page, browser

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}, dead: {{kind: openai, base_url: "http://127.0.0.1:9/v1"}}}}
models:
  - {{match: "gpt-4o*", upstream: main, window: 2000, prices: {{input: 2, output: 8}}}}
  - {{match: "<b>bold</b>", upstream: main, chain: telling, window: 8192}}
  - {{match: plain, upstream: main, chain: empty, window: 8192}}
  - {{match: dead, upstream: dead}}
chains:
  default:
    - consolidate_system: {{}}
    - window_history: {{keep_turns: 4, stride: 2, summary: false}}
    - reject_oversize: {{share: 0.95}}
  telling: [tests.ui.telling: {{}}]
  empty: []
server: {{admin_key: "{key}", watch: false}}
state: {{directory: "{folder}/state"}}
embedding: {{kind: none}}
records: {{per_second: 10000}}
telemetry: {{log_level: error}}
"""
KEY = "s3cret"
REFUSED_KEY = "401 (Unauthorized)"
"""The browser notes each refusal of a key by itself."""
WIDE, NARROW = (1400, 900), (390, 844)

HOSTILE = "<script>alert(1)</script><script>window.pwned = 1</script>"


async def answering(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """As a provider does, or not at all."""
    if b"please fail" in received.body:
        await send(writer, 503, b'{"error": {"message": "<script>alert(1)</script>", "code": "<b>overloaded"}}')
        return
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [], "usage": {}}
    answer["usage"] = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
    await send(writer, 200, json.dumps(answer).encode())


class Served(Desk):
    """A proxy with requests to show, and a browser in front of it."""

    def __init__(self, page: Page, base: str, http: aiohttp.ClientSession) -> None:
        super().__init__(page, base)
        self._http, self._sent = http, 0

    async def send(self, text: str = "hi", *, model: str = "gpt-4o-mini", turns: int = 1) -> str:
        """Send a conversation; the request's id."""
        self._sent += 1
        name = f"req-{self._sent:03}"
        body = {"model": model, "messages": [{"role": "user", "content": f"{text}"} for _ in range(turns)]}
        await self.post(body, name)
        return name

    async def post(self, body: object, name: str) -> None:
        headers = {"x-request-id": name, "authorization": "Bearer sk-client"}
        async with self._http.post(f"{self.base}/v1/chat/completions", json=body, headers=headers) as answer:
            await answer.read()

    async def work(self) -> None:
        """A little of everything."""
        for turns in (1, 3, 5, 9):
            await self.send("tell me more about the plan " * 20, turns=turns)
        await self.send(model="plain")
        await self.send("please fail")
        await self.send(model="dead")
        await self.send("word " * 4000)

    async def sign_in(self, key: str = KEY) -> None:
        """Open the page and give the key, by keyboard."""
        await self.page.open(f"{self.base}/ui#/requests")
        await self.page.until("document.activeElement.id === 'key'")
        await self.page.type(key)
        await self.page.press("Enter")

    async def listed(self, requests: int) -> None:
        """Wait until so many requests are listed."""
        await self.page.until(f"document.querySelectorAll('tr.request:not([hidden])').length === {requests}")


@pytest.fixture(params=[CONFIG])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Served, None]:
    async with browser() as page, upstream() as behind, aiohttp.ClientSession() as http:
        behind.respond = answering
        text = request.param.format(url=behind.url, key=KEY, folder=tmp_path)
        async with proxy(text, tmp_path) as base:
            await page.sized(*WIDE)
            yield Served(page, base, http)


async def test_the_key_opens_the_page_and_leaves_with_its_operator(desk: Served) -> None:
    page = desk.page
    await desk.send()
    await desk.sign_in("wrong")
    await page.until("document.querySelector('#note').innerText === 'This is not the admin key.'")
    await page.picture("login-wrong")
    assert not await page.sees("#page")
    await page.run("document.querySelector('#key').value = ''")
    await page.type("schlüssel-ключ")  # no header can carry it
    await page.press("Enter")
    await page.until("document.querySelector('#note').innerText === 'This is not the admin key.'")
    await page.run("document.querySelector('#key').value = ''")
    await page.type(KEY)
    await page.press("Enter")
    await desk.listed(1)
    assert not await page.sees("#login")
    assert await page.run("document.querySelector('#key').value") == ""
    assert await page.run("document.activeElement.id") == "view"
    assert KEY not in await page.run("document.documentElement.outerHTML")
    assert await page.run("localStorage.length + document.cookie.length") == 0
    await page.call("Page.reload")
    await desk.listed(1)  # the tab knows it
    await page.click("#leave")
    await page.until("document.activeElement.id === 'key'")
    assert await page.run("sessionStorage.length + document.querySelectorAll('tr.request').length") == 0
    assert not [url for url in page.asked if KEY in url]
    desk.is_sound(REFUSED_KEY)


async def test_requests_are_listed_as_they_come(desk: Served) -> None:
    page = desk.page
    await desk.sign_in()
    await page.until("document.querySelector('.empty')?.innerText === 'No requests yet.'")
    await desk.work()
    await desk.listed(8)
    rows = await page.texts("tr.request")
    assert "req-008" in rows[0]
    assert "400" in rows[0]
    assert "context_length_exceeded" in rows[0]
    assert "502" in rows[1]
    assert "503" in rows[2]
    assert " → " in rows[4]
    assert "With a problem\n3" in await page.text(".sums")
    await page.picture("list")
    desk.is_sound(REFUSED_KEY)


async def test_it_needs_no_mouse(desk: Served) -> None:
    page = desk.page
    for _ in range(3):
        await desk.send()
    await desk.sign_in()
    await desk.listed(3)
    focused = "document.activeElement.innerText"
    await page.press("ArrowDown")
    assert await page.run(focused) == "req-003"
    await page.press("j")
    assert await page.run(focused) == "req-002"
    await desk.send()
    await desk.listed(4)
    assert await page.run(focused) == "req-002", "what comes in does not take the focus away"
    await page.press("k")
    await page.press("k")
    await page.press("k")
    assert await page.run(focused) == "req-004"
    await page.press("Enter")
    await page.until("location.hash.startsWith('#/requests/req-004/') && document.querySelector('.steps tbody tr')")
    await page.press("Escape")
    await desk.listed(4)
    await page.press("p")
    await desk.send()
    await page.until("document.querySelector('#live').innerText === 'paused'")
    await desk.listed(4)
    await page.press("p")
    await desk.listed(5)
    await page.press("/")
    await page.type("req-003")
    await desk.listed(1)
    await page.press("Enter")
    await page.until("location.hash === '#/requests/req-003' && document.querySelector('.steps tbody tr')")
    desk.is_sound(REFUSED_KEY)


async def test_nothing_but_the_page_itself_would_run(desk: Served) -> None:
    page = desk.page
    await desk.sign_in()
    await page.until("!document.querySelector('#page').hidden")
    desk.is_sound(REFUSED_KEY)
    await page.run(
        "const link = document.createElement('a'), image = document.createElement('img'), form = document.createElement('form');"
        "link.href = 'javascript:window.pwned = 1'; image.src = 'http://127.0.0.1:9/x'; form.action = '/x';"
        "document.body.append(link, image, form); link.click(); form.submit();"
        "try { const made = document.createElement('script'); made.textContent = 'window.pwned = 1'; document.body.append(made); } catch {}"
        "try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned = 1\">'); } catch {}"
        "fetch('http://127.0.0.1:9/').catch(() => 0)"
    )
    await page.until("true")
    assert await page.run("window.pwned") is None
    assert await page.run("location.pathname") == "/ui"
    assert len([each for each in page.complaints if "Content Security Policy" in each or "Trusted" in each]) >= 4


async def test_a_busy_server_is_followed_without_getting_slow(desk: Served) -> None:
    page = desk.page
    await desk.sign_in()
    await page.until("!document.querySelector('#page').hidden")
    for _ in range(5):
        await asyncio.gather(*(desk.send(turns=6) for _ in range(60)))
    names = "[...document.querySelectorAll('tr.request .id')].map(each => each.innerText)"
    await page.until(f"{names}.filter(name => name > 'req-240').length === 60")  # the last of them
    await desk.listed(200)
    page.asked.clear()
    await desk.send()
    await page.until("document.querySelector('tr.request .id').innerText === 'req-301'")
    asked = [url for url in page.asked if "admin/requests" in url]
    assert asked
    assert all("since=" in url for url in asked), "only what is new is asked for"
    assert await page.count("tr.request") == 200
    desk.is_sound(REFUSED_KEY)


OPEN = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "gpt-4o*", upstream: main, window: 8000, prices: {{input: 2.5, output: 10}}}}]
chains:
  default: [compact_tool_results: {{}}, window_history: {{keep_turns: 3, stride: 2}}, offer_recall: {{}}]
server: {{watch: false}}
records: {{text: true}}
state: {{directory: "{folder}/state"}}
embedding: {{kind: none}}
vectors: none
telemetry: {{log_level: error}}
"""


@pytest.mark.parametrize("desk", [OPEN], ids=["open"], indirect=True)
async def test_a_conversation_of_a_running_proxy_is_shown_and_another_chain_tried(desk: Served) -> None:
    page, base = desk.page, desk.base
    tools = [{"type": "function", "function": {"name": "<img src=x>", "parameters": {"type": "object"}}}]
    messages: list[dict[str, object]] = [{"role": "system", "content": "You look up orders."}]
    for n in range(8):
        result = "\n".join(f"A-{row} is shipped and stands at door {row * n}" for row in range(300))
        call = {"id": f"c{n}", "type": "function", "function": {"name": "<img src=x>", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"Where is A-{n}? {HOSTILE}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": result},
        ]
        await desk.post({"model": "gpt-4o", "messages": messages, "tools": tools}, f"turn-{n}")
        messages.append({"role": "assistant", "content": f"At your door, {n}."})
    await page.open(f"{base}/")
    await page.until("document.querySelectorAll('tr.row').length === 1")
    await page.press("j")
    await page.press("Enter")
    await page.until("document.querySelectorAll('.chart canvas').length === 1")
    assert len(rows := await page.texts("tr.row")) == 8
    assert all(told in ",".join(rows) for told in ("▼ cut", "◆ shortened"))
    await page.run("[...document.querySelectorAll('tr.row .open')].at(-1).click()")
    await page.until("document.querySelector('.kind.shortened') && document.querySelector('.kind.removed')")
    await page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    shown = await page.text("#view")
    assert HOSTILE in shown
    assert "<img src=x>" in shown
    await page.push(".pairs button", "Original")
    await page.shows("#original-text", "A-59")
    await page.press("Escape")
    await page.open(f"{base}/ui#/try/turn-7")
    await page.shows(".both")
    tokens = "document.querySelectorAll('.both tr')[2].innerText"
    assert "100 %" in await page.run(tokens), "the chain is still the running one"
    await page.write("- window_history: {keep_turns: 1, stride: 1}\n", area=1)
    await page.until(f"!{tokens}.includes('100 %')")
    await page.type("- tests.ui.telling: {}\n")
    await page.shows("#view > div > p.bad", "not imported here")
    for view in ("policies", "periods", "config"):
        await page.open(f"{base}/ui#/{view}")
        await page.shows(f".view.{view} .card")
    assert await page.run("window.pwned") is None
    assert await page.count("#page :is(img, script)") == 0
    desk.is_sound("400 (Bad Request)")
