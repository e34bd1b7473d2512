"""What operators and clients learn of recent requests, and who learns nothing."""

import hashlib
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Client, Lab

CONFIG = """
models: [{match: m, upstream: main, window: 8192, prices: {input: 2, output: 8}}]
chains: {default: [consolidate_system: {}, window_history: {keep_turns: 1, stride: 1, summary: false}]}
server: {{server}}
"""
SECRET = "my grandmother's recipe"
BODY = {"model": "m", "messages": [{"role": "user", "content": f"{SECRET} {n}"} for n in range(3)]}
ADMIN = {"authorization": "Bearer s3cret"}
PATHS = ["/admin/config", "/admin/requests", "/admin/requests/x", "/ui", "/ui/app.js", "/"]
OPEN = PATHS[3:]
"""Those that show nothing by themselves."""
ROOT = Path(__file__).parent.parent.parent


async def outcomes(client: Client, paths: Iterable[str], *several: Any, method: str = "GET") -> set[Any]:
    """The statuses, and of refusals the codes, of requests with each of several headers for each of these paths."""
    answers = [await client.send(method, path, headers) for path in paths for headers in several or ({},)]
    return {answer.status if answer.status < 400 else answer.refusal for answer in answers}


NOT_FOUND, UNAUTHORIZED = (404, "not_found"), (401, "invalid_api_key")


async def test_without_a_key_or_a_port_there_is_nothing(lab: Lab) -> None:
    client = await lab.client(CONFIG, server="host: 0.0.0.0")
    assert await outcomes(client, PATHS, ADMIN, {}) == {NOT_FOUND}
    assert await outcomes(client, ["/admin/reload"], method="POST") == {NOT_FOUND}
    assert await outcomes(client, ["/metrics"]) == {200}


async def test_on_loopback_the_page_is_open_to_the_machine(lab: Lab) -> None:
    client = await lab.client(CONFIG, server="")
    await client.post("/v1/chat/completions", BODY, {"x-request-id": "anns"}, key="sk-ann")
    own = {"host": "localhost:4000", "origin": "http://localhost:4000"}
    assert await outcomes(client, (*PATHS[:2], "/admin/requests/anns", *OPEN), {}, own) == {200}
    keys = ({"authorization": "Bearer sk-bob"}, {"x-api-key": "sk-bob"})
    assert await outcomes(client, PATHS, *keys) == {NOT_FOUND}, "a client is no operator"
    proxies = ({name: "1"} for name in ("x-forwarded-for", "x-forwarded-proto", "forwarded", "via", "x-real-ip"))
    assert await outcomes(client, PATHS, *proxies) == {NOT_FOUND}, "a proxy in front passes on for anybody"
    hosts = ({"host": host} for host in ("evil.example", "wiki:4000", "10.1.2.3", "localhost.evil.example"))
    assert await outcomes(client, PATHS, *hosts) == {(403, "foreign_host")}, "a name may be made to lead here"
    pages = ({"origin": "http://localhost:1"}, {"origin": "null"}, {"sec-fetch-site": "same-site"})
    assert await outcomes(client, PATHS, *pages) == {(403, "foreign_origin")}
    for method, path in (("POST", "/admin/reload"), ("DELETE", "/admin/tenants/x")):
        assert await outcomes(client, [path], method=method) == {NOT_FOUND}, "a change needs a key or a port"


async def test_the_first_line_says_where_the_page_is(lab: Lab) -> None:
    async with lab.served(CONFIG, server="") as running:
        assert running.line == f"penstock: listening on {running.base}/v1 (1 worker); the page: {running.base}/ui\n"
        async with lab.http.get(f"{running.base}/", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["location"]) == (307, "ui")
        assert await outcomes(Client(running.base, lab.http), ["/admin/requests"]) == {200}
    async with lab.served(CONFIG, "--host", "0.0.0.0", server="") as running:
        assert running.line.endswith("/v1 (1 worker)\n"), "others than this machine reach it"
        assert await outcomes(Client(running.base, lab.http), ["/ui"]) == {NOT_FOUND}


async def test_the_key_opens_it(lab: Lab) -> None:
    client = await lab.client(CONFIG, server="admin_key: s3cret")
    wrong: tuple[Any, ...] = (
        {},
        {"authorization": "Bearer s3cre"},
        {"authorization": "Basic s3cret"},
        {"authorization": ""},
    )
    shut = (*PATHS[:3], "/metrics", "/admin/keys", "/admin/replays")
    assert await outcomes(client, shut, *wrong) == {UNAUTHORIZED}
    for method, path in (("POST", "/admin/reload"), ("DELETE", "/admin/tenants/x"), ("POST", "/admin/replays")):
        assert await outcomes(client, [path], *wrong, method=method) == {UNAUTHORIZED}
    assert await outcomes(client, OPEN) == {200}
    assert b"penstock_build_info" in (await client.get("/metrics", ADMIN)).body
    answer = await client.get("/admin/config", ADMIN)
    told, names = answer.json, "process tasks version since generations workers text chains trace_url"
    assert (answer.status, told.keys()) == (200, {*names.split()})
    assert "s3cret" not in told["text"]
    assert "admin_key: '***'" in told["text"]
    assert lab.behind.url in told["text"]
    assert "keep_turns: 1" in told["chains"]["default"]
    assert (await client.send("POST", "/admin/reload", ADMIN)).json["outcome"] == "unchanged"
    assert (await client.get("/admin/reload", ADMIN)).status == 405


async def test_where_clients_have_keys_metrics_are_not_for_them(lab: Lab) -> None:
    keyed = 'upstreams: {main: {kind: openai, base_url: "{url}", api_key: k}}\nauth: {kind: keys}\n'
    client = await lab.client(CONFIG + keyed, server="")
    paths = ("/metrics", *PATHS)
    assert await outcomes(client, paths, {}, ADMIN) == {NOT_FOUND}, "others' keys, and what they use"


async def test_a_port_of_its_own(lab: Lab) -> None:
    async with lab.served(CONFIG, server="admin_port: 0") as running:
        client, operator = Client(running.base, lab.http), Client(await running.admin(), lab.http)
        await client.post("/v1/chat/completions", BODY, {"x-request-id": "mine"}, key="k")
        assert await outcomes(client, (*PATHS, "/metrics")) == {NOT_FOUND}
        paths = (*PATHS[:2], "/admin/requests/mine", "/ui", "/metrics", "/readyz", "/healthz")
        assert await outcomes(operator, paths) == {200}
        assert await outcomes(operator, ("/v1/chat/completions", "/v1/compress"), method="POST") == {NOT_FOUND}
        assert len(lab.behind.received) == 1


async def test_a_changed_configuration_is_checked_and_not_put_in_force(lab: Lab) -> None:
    secret = lab.folder / "secret"
    secret.write_text("marmalade-77")
    client = await lab.client(CONFIG, server="")

    async def check(text: str) -> Any:
        answer = await client.post("/admin/check", {"yaml": text})
        assert answer.status == 200
        return answer.json

    before = await client.get("/admin/config")
    good = (lab.folder / "config.yaml").read_text()
    assert await check(good) == {"errors": [], "warnings": []}
    assert (await check("modls: []"))["errors"][0] == "config.yaml:1: modls: unknown key; did you mean 'models'?"
    assert len((await check("models: [{}]\nserver: {prot: 1}"))["errors"]) > 2, "all at once"
    (told,) = (await check(f"{good}\ndefault_upstream: '${{file:{secret}}}'"))["errors"]
    assert "cannot be read" in told, "it is no way to read files"
    (told,) = (await check(good.replace("consolidate_system", "tests.ui.telling")))["errors"]
    assert "not imported here" in told, "nor to run code"
    assert (await client.get("/admin/config")).json["version"] == before.json["version"]


class Page(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name, value or "") for name, value in attrs]


async def test_the_page_runs_nothing_but_itself(lab: Lab) -> None:
    client = await lab.client(CONFIG, server="admin_key: s3cret")
    page = Page((await client.get("/ui")).body.decode())
    assert not [name for _, name, _ in page.found if name.startswith("on") or name == "style"]
    linked = [value for tag, name, value in page.found if (tag, name) in (("script", "src"), ("link", "href"))]
    assert "ui/app.js" in linked
    files = [path.name for path in (ROOT / "proxy/data/ui").iterdir() if path.suffix != ".LICENSE"]
    assert {value.removeprefix("ui/") for value in linked} <= set(files)
    for name in files:
        answer = await client.get(f"/ui/{name}")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ")
        assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        if "uPlot" not in name:
            assert not re.search(rb"https?://|innerHTML|insertAdjacentHTML|eval\(|document\.write", answer.body), name
    others = ("uPlot.LICENSE", "..%2fmodels.json", "%2e%2e%2fmodels.json", "app.py")
    assert await outcomes(client, [f"/ui/{name}" for name in others]) == {NOT_FOUND}


def test_the_library_of_charts_is_the_published_one() -> None:
    """uPlot 1.6.32, as the package registry has it; `npm pack uplot@1.6.32` brings the same."""
    published = {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    }
    for name, digest in published.items():
        assert hashlib.sha256((ROOT / "proxy/data/ui" / name).read_bytes()).hexdigest() == digest
        assert name in (ROOT / "NOTICE").read_text()
