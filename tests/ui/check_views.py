"""The views of `/ui` in a real Chromium, over made-up conversations. `make test-ui`; skipped where there is no Chromium.

`PICTURES=folder` keeps what is to be seen; the pictures of the documentation are made so.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import RecordsSettings
from tests.ui.browser import Desk, Page, browser
from tests.ui.check_page import NARROW, WIDE
from tests.ui.stand_in import HOSTILE, StandIn, hostile, stand_in

CONTRAST = Path(__file__).with_name("contrast.js").read_text()
VIEWS = {
    "conversations": ("#/conversations", "tr.row canvas"),
    "conversation": ("#/conversations/c0ffee21", ".chart canvas"),
    "request": ("#/requests/c0ffee21-041", ".pairs .kind"),
    "requests": ("#/requests", "tr.request"),
    "policies": ("#/policies", ".policies .track"),
    "periods": ("#/periods", ".periods .chart canvas"),
    "keys": ("#/keys", ".card .chart canvas"),
    "compare": ("#/compare", ".compare .picks"),
    "config": ("#/config", ".source li"),
    "try": ("#/try", ".result .steps tbody tr"),
}


class Made(Desk):
    """A browser in front of the stand-in."""

    def __init__(self, page: Page, base: str, server: StandIn) -> None:
        super().__init__(page, base)
        self.server = server

    async def open(self, view: str) -> None:
        """Go to a view, and wait until it shows something."""
        address, shown = VIEWS.get(view, (view, "#view .card"))
        await self.page.open("about:blank")
        await self.page.open(f"{self.base}/ui{address}")
        await self.page.until(f"document.querySelector({shown!r})")

    async def choose(self, name: str, value: str) -> None:
        """Give a filter a value."""
        field = f"document.querySelector('[name={name}]')"
        await self.page.run(f"{field}.value = '{value}'; {field}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    async def until_asked(self, holds: Callable[[str, Any], bool]) -> None:
        """Wait until the page has asked such a question: a path, and its parameters or body."""
        async with asyncio.timeout(60):
            while not any(holds(*asked) for asked in self.server.asked):
                await asyncio.sleep(0.05)


@pytest.fixture
async def desk() -> AsyncGenerator[Made, None]:
    async with browser() as page, stand_in() as (server, base):
        await page.sized(*WIDE)
        yield Made(page, base, server)


async def test_conversations_lead_to_a_timeline_and_that_to_a_request(desk: Made) -> None:
    page = desk.page
    await desk.open("/")
    await page.until("document.querySelectorAll('tr.row canvas').length === 3")
    assert await page.run("location.pathname") == "/ui"
    first = await page.text("tr.row")
    assert "The totals of invoices are off by a cent" in first
    assert "fix-invoice-… · ann" in first
    assert "60" in first
    assert "1 failed step, 2 prefix breaks" in first
    assert "Conversations\n3" in await page.text(".sums")
    await page.press("j")
    await page.press("Enter")
    await page.shows(".chart canvas")
    assert "60\n" in await page.text(".sums")
    legend = await page.text(".keys")
    assert all(word in legend for word in ("read from the cache", "not cached", "answer", "unchanged conversation"))
    assert all(word in legend for word in ("▼ cut", "◆ shortened", "▲ brought in", "✕ prefix break", "! problem"))
    rows = await page.texts("tr.row")
    assert len(rows) == 60
    assert "▼ cut" in rows[20]
    assert "✕ prefix break" in rows[20]
    assert "▼ cut" not in rows[21], "what was cut before stays away, and is no news"
    broken = await page.text(".breaks")
    assert "compress_history" in broken
    assert "the client" in broken or broken.count("compress_history") == 2
    await page.focus(".chart")
    for _ in range(21):
        await page.press("ArrowRight")
    tip = await page.text(".tip")
    assert "Turn 21" in tip
    assert "compress_history: dropped 30 messages" in tip
    assert "moved by compress_history" in tip
    await page.press("Enter")
    await page.until("location.hash.startsWith('#/requests/c0ffee21-021/')")
    await page.shows(".pairs .kind")
    await page.press("Escape")
    await page.shows(".chart canvas")
    desk.is_sound()


async def test_sums_over_time_change_their_groups_and_what_is_summed(desk: Made) -> None:
    page = desk.page
    await desk.open("periods")
    assert "gpt-4o" in await page.text(".sums-by tbody")
    await page.picture("periods")
    await page.run("document.querySelectorAll('.choices .switch')[0].querySelectorAll('button')[3].click()")
    await page.shows(".sums-by tbody", "compress_history")
    assert "Saved net" in await page.text(".periods .card h2")
    await page.picture("periods-of-policies")
    await page.run("document.querySelectorAll('.choices .switch')[1].querySelectorAll('button')[3].click()")
    await page.until("document.querySelector('.periods .card h2').innerText === 'Failed steps'")
    assert "Policy\tSteps\tFailed steps" in await page.text(".sums-by")
    await page.shows(".chart canvas")
    desk.is_sound()


async def test_a_key_is_made_shown_once_and_revoked_in_two_steps(desk: Made) -> None:
    page = desk.page
    await desk.open("keys")
    rows = "[...document.querySelectorAll('.keys-of tbody tr')].map(row => row.innerText)"
    assert ["Revoke" in each for each in await page.run(rows)] == [False, True, True]
    await page.push(".keys-of button.step")
    await page.shows(".both")
    assert "2026-11-27\t40\t" in await page.text(".both")
    fields = {"name": "ann", "budget_per_day": "2.5", "models": "gpt-*, echo", "expires": "2027-01-31"}
    for name, value in fields.items():
        await page.run(f"document.querySelector('form.choices [name={name}]').value = {value!r}")
    await page.push("form.choices .main")
    await page.until("document.querySelector('.card.bad')?.innerText.includes('already')")
    await page.run("document.querySelector('form.choices [name=name]').value = 'eve'")
    await page.push("form.choices .main")
    await page.until("document.querySelector('input.code')?.value.startsWith('pk-')")
    wanted = {"name": "eve", "models": ["gpt-*", "echo"], "budget_per_day": 2.5, "expires": "2027-01-31T00:00:00Z"}
    assert ("/admin/keys", wanted) in desk.server.asked
    await page.until(f"{rows}.length === 4")
    await page.picture("keys-made")
    for text in ("Revoke", "Really revoke?"):
        await page.until(
            f"[...document.querySelectorAll('.keys-of tr:last-child button')].at(-1).innerText === {text!r}"
        )
        await page.run("[...document.querySelectorAll('.keys-of tr:last-child button')].at(-1).click()")
    await page.until(f"{rows}.length === 3")
    assert "eve is revoked" in await page.text(".card.good")
    assert not await page.run("document.querySelector('input.code')"), "the secret is gone"
    desk.server.locked = "only an operator with server.admin_key changes keys"
    desk.server.keys = [{**each, "revocable": False} for each in desk.server.keys]
    await desk.open("keys")
    assert "only an operator with server.admin_key" in await page.text("#view")
    assert not await page.run("document.querySelector('form.choices').checkVisibility()")
    assert "Revoke" not in await page.text("#view")
    desk.is_sound("400 (Bad Request)")


async def test_two_chains_are_compared_with_progress_and_cancelled(desk: Made) -> None:
    page = desk.page
    await desk.open("compare")
    chosen = await page.run("[...document.querySelectorAll('.compare select')].map(each => each.value)")
    assert chosen == ["default", ""]
    await page.push(".compare .choices button", "Compare")
    await page.until("document.querySelector('progress')?.value === 80")
    assert ("/admin/replays", {"chain": "default", "against": "", "newest": 10}) in desk.server.asked
    assert "1 conversation left out: their text is not kept" in await page.text(".result")
    assert await page.run("document.querySelector('.compare button.main').disabled")
    await page.push(".compare .choices button", "Cancel")
    await page.shows(".result", "cancelled")
    await page.run(
        "document.querySelector('details:has(.picks)').open = true; document.querySelectorAll('.picks input')[1].click()"
    )
    await page.push(".compare .choices button", "Compare")
    await page.shows("progress")
    assert ("/admin/replays", {"chain": "default", "against": "", "ids": ["5eed0042"]}) in desk.server.asked
    report = desk.server.compared()
    report["conversations"].append({"id": HOSTILE, "error": HOSTILE, "sides": report["total"]})
    desk.server.replay |= {"state": "done", "report": report}
    await page.shows(".compared-chains")
    shown = await page.text(".compared-chains")
    assert "All\tdefault\t180\t384,000\t270,000\t0.9600\t1.4400\t108 of 180" in shown
    assert HOSTILE in shown
    await page.run("document.querySelector('details:has(.picks)').open = false")
    await page.picture("compared")
    desk.is_sound()


async def test_without_text_nothing_is_compared(desk: Made) -> None:
    desk.server.records.settings = RecordsSettings()
    await desk.page.open(f"{desk.base}/ui#/compare")
    await desk.page.until("document.querySelector('.empty')")
    assert "Records hold no text" in await desk.page.text(".empty")
    desk.is_sound()


async def test_the_mouse_tells_why_and_money_is_a_press_away(desk: Made) -> None:
    page = desk.page
    await desk.open("conversation")
    left, top, width = await page.run(
        "(() => { const r = document.querySelector('.u-over').getBoundingClientRect(); return [r.x, r.y, r.width]; })()"
    )
    await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + width * (41 - 0.4) / 60.2, y=top + 80)
    await page.until("!document.querySelector('.tip').hidden")
    tip = await page.text(".tip")
    assert "Turn 41" in tip
    assert "40 messages cut" in tip, "30 others had left before"
    await page.picture("tip")
    await page.run("document.querySelectorAll('.switch button')[1].click()")
    await page.until("document.querySelectorAll('.switch button')[1].ariaPressed === 'true'")
    await page.focus(".chart")
    await page.press("ArrowRight")
    assert "US$" in await page.text(".tip")
    desk.is_sound()


async def test_a_request_is_shown_side_by_side_and_step_by_step(desk: Made) -> None:
    page = desk.page
    await desk.open("request")
    kinds = set(await page.texts(".pairs .kind"))
    assert kinds == {"removed", "added"}
    steps = await page.text(".steps tbody")
    assert "compress_history" in steps
    assert "turn " in steps, "when it has paid for what it broke"
    assert "Prefix break at message 2" in await page.text("p.card.warn")
    assert "80 messages" not in await page.text(".pairs")
    await page.run("document.querySelectorAll('button.step')[1].click()")
    assert "step 2 of 4: compress_history, 2 changes" in await page.text(".stepper")
    assert await page.count(".pair.other") == 1, "the passage of another step"
    await page.press("ArrowRight")
    assert "step 3 of 4" in await page.text(".stepper")
    await page.push(".same button")
    await page.until(
        "document.querySelector('#original').open && document.querySelector('#original-text').innerText.length > 3"
    )
    assert HOSTILE in await page.text("#original-text")
    await page.press("Escape")
    assert await page.run("location.hash") == "#/requests/c0ffee21-041", "it closed the original, and nothing else"
    assert "What is shown" not in await page.text("#note")
    await page.run("document.querySelector('details.same:not(:has(ul))').open = true")
    await page.shows("details.same .pair")
    await desk.open("#/requests/c0ffee21-018")
    await page.shows(".kind.shortened")
    assert await page.count(".pairs del, .pairs ins") > 0
    desk.is_sound()


async def test_without_text_there_are_sizes_and_shapes(desk: Made) -> None:
    page = desk.page
    desk.server.records.settings = RecordsSettings()
    await desk.open("request")
    assert "records: {text: true}" in await page.text("#view .hint")
    assert "removed" in await page.text(".pairs")
    assert await page.count("pre.text") == 0
    assert "of 123,904 usable tokens" in await page.text(".sections")
    desk.is_sound()


async def test_filters_are_the_servers_and_stay_in_the_address(desk: Made) -> None:
    page = desk.page
    await desk.open("conversations")
    await page.press("/")
    await page.type("gpt-4o")
    await page.press("Enter")
    await page.run("document.activeElement.blur()")
    await page.until("location.hash === '#/conversations?model=gpt-4o'")
    await page.until("document.querySelectorAll('tr.row').length === 3")
    await desk.until_asked(lambda path, question: question == {"limit": "50", "model": "gpt-4o"})
    await desk.choose("model", "other")
    await page.until("document.querySelector('.empty')?.innerText === 'No conversation fits these filters.'")
    await desk.choose("since", "3600")
    await page.until("location.hash.includes('since=3600')")
    await desk.until_asked(lambda path, question: question.get("since", "").endswith("Z"))
    assert await page.run("document.querySelector('nav a').hash") == "#/conversations?since=3600&model=other", (
        "other views have the same filters"
    )
    desk.is_sound()


async def test_words_search_and_a_conversation_leaves_as_a_file(desk: Made) -> None:
    page = desk.page
    await desk.open("conversations")
    await desk.choose("words", "cent")
    await page.until("location.hash === '#/conversations?words=cent'")
    await page.until("document.querySelectorAll('tr.row').length === 3")
    await desk.until_asked(lambda path, question: question.get("words") == "cent")
    await desk.open("conversation")
    await page.push(".actions button", "CSV")
    exported = "/admin/conversations/c0ffee21/export", {"format": "csv"}
    await desk.until_asked(lambda *asked: asked == exported)
    desk.is_sound()


async def test_a_changed_configuration_is_checked_before_it_is_in_force(desk: Made) -> None:
    page = desk.page
    await desk.open("config")
    assert "version: 1" in await page.text(".source")
    await page.run(
        "document.querySelector('textarea').focus(); document.querySelector('textarea').setSelectionRange(0, 0)"
    )
    await page.type("chian: 1\n")
    await page.shows(".findings")
    assert "did you mean 'chains'?" in await page.text(".findings .bad")
    assert "stands behind" in await page.text(".findings .warn")
    desk.is_sound()


async def test_a_chain_is_tried_at_once(desk: Made) -> None:
    page = desk.page
    await desk.open("try")
    assert "compact_tool_results" in await page.run("document.querySelectorAll('textarea')[1].value")
    assert "of it" in await page.text(".both")
    desk.server.asked.clear()
    await page.write("- chian: {}\n", area=1)
    await page.shows("#view > div > p.bad", "unknown policy")
    question = next(question for path, question in desk.server.asked if path == "/admin/explain")
    assert question["chain_yaml"] == "- chian: {}\n"
    assert question["against"] == "default"
    assert question["request"]["model"] == "gpt-4o"
    await page.run(
        "document.querySelectorAll('textarea')[0].value = '{'; document.querySelectorAll('textarea')[0].dispatchEvent(new Event('input'))"
    )
    await page.shows("#view > div > p.bad", "not valid JSON")
    await page.open("about:blank")
    desk.server.asked.clear()
    await page.open(f"{desk.base}/ui#/try/c0ffee21-041")
    await page.shows(".result .steps tbody tr")
    question = next(question for path, question in desk.server.asked if path == "/admin/explain")
    assert question["request_id"] == "c0ffee21-041"
    assert "run the tests" in await page.run("document.querySelectorAll('textarea')[0].value"), "what was recorded"
    desk.is_sound("400 (Bad Request)")


async def test_whatever_a_client_writes_is_text_in_every_view(desk: Made) -> None:
    page = desk.page
    await desk.server.add(hostile())
    desk.server.keys.append(desk.server.key(HOSTILE, 1))
    desk.server.replay |= {"state": "failed", "error": HOSTILE, "chain": HOSTILE, "against": HOSTILE}
    for view in VIEWS:
        await desk.open(view)
        await page.until("true")
    quoted = await page.run(f"encodeURIComponent({HOSTILE!r})")
    await desk.open("#/conversations/hostile")
    assert HOSTILE in await page.text("#view")
    await page.focus(".chart")
    await page.press("ArrowRight")
    assert HOSTILE in await page.text(".tip")
    await desk.open(f"#/requests/{quoted}")
    await page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    await page.until("document.querySelectorAll('pre.text').length > 5")
    shown = await page.text("#view")
    assert '<img onerror="window.pwned = 1" src=x>' in shown, "the name of a tool"
    assert f"image\njavascript:{HOSTILE}"[:60] in shown
    made = "document.querySelectorAll('#page img, #page svg, #page iframe, #page script, #page style').length"
    assert await page.run(made) == 0
    assert not [sign for sign in shown if ord(sign) < 32 and sign not in "\n\t"]
    assert not set(shown) & set("\u202e\u2066\u200f\u061c\u2028\u200b\x7f")
    assert await page.run("document.body.scrollWidth <= innerWidth"), "nothing pushes the page apart"
    assert await page.run("window.pwned") is None
    await page.picture("hostile")
    desk.is_sound()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_every_view_fits_and_can_be_read(desk: Made, size: tuple[int, int], dark: bool) -> None:
    page = desk.page
    await page.sized(*size, dark=dark)
    for view in VIEWS:
        await desk.open(view)
        assert await page.run("document.documentElement.scrollWidth <= innerWidth"), (
            f"{view} is to be scrolled sideways"
        )
        assert await page.run(CONTRAST) == [], view
        assert not re.search(r"\b(null|undefined|NaN)\b", await page.text()), view
        await page.picture(f"{view}-{'narrow' if size == NARROW else 'wide'}-{'dark' if dark else 'light'}")
    desk.is_sound()


async def test_a_server_that_is_away_is_told_and_what_is_shown_stays(desk: Made) -> None:
    page = desk.page
    await desk.open("conversations")
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await page.call("Network.emulateNetworkConditions", offline=True, **offline)
    await page.shows("#note", "The server does not answer. What is shown is of ")
    assert await page.count("tr.row") == 3
    await page.call("Network.emulateNetworkConditions", offline=False, **offline)
    await page.until("document.querySelector('#note').innerText === ''")


async def test_every_view_is_reached_by_keyboard(desk: Made) -> None:
    page = desk.page
    await desk.open("conversations")
    reached = set()
    for _ in range(30):  # the focus is always to be seen
        await page.press("Tab")
        outline = "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"
        assert await page.run(outline) in (True, "solid", "auto")
        reached.add(await page.run("document.activeElement.innerText"))
    assert {"Conversations", "Requests", "Policies", "Keys", "Config", "Try it", "Compare", "Pause"} <= reached


async def test_the_pictures_of_the_documentation(desk: Made) -> None:
    """`make pictures` keeps them in docs/pictures."""
    page = desk.page
    await page.sized(1400, 860)
    await desk.open("conversation")
    await page.focus(".chart")
    for _ in range(21):
        await page.press("ArrowRight")
    await page.run("document.activeElement.blur()")
    assert "Turn 21" in await page.text(".tip")
    await page.picture("conversation")
    await page.sized(1180, 700)
    await desk.open("#/requests/c0ffee21-020")
    await page.until("document.querySelectorAll('.kind.shortened').length > 3")
    await page.run("document.querySelectorAll('button.step')[0].click()")
    await page.run("document.querySelector('.compared').scrollIntoView()")
    assert "step 1 of 4" in await page.text(".stepper")
    await page.picture("request")
    await page.sized(1180, 760)
    await desk.open("keys")
    await page.picture("keys")
    desk.server.replay = {
        "state": "done", "chain": "default", "against": "", "played": 360, "requests": 360, "without_text": 0, "report": desk.server.compared(),
    }  # fmt: skip
    await desk.open("compare")
    await page.shows(".compared-chains")
    await page.picture("compare")
    desk.is_sound()
