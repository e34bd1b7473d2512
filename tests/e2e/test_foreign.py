"""A provider behind litellm, through the running proxy: litellm works in a process of its own."""

import aiohttp

from tests.e2e.conftest import Lab
from tests.e2e.servers import proxy
from tests.upstreams.foreign.fake_anthropic import fake_anthropic

CONFIG = """
upstreams: {{claude: {{kind: foreign, provider: anthropic, base_url: "{url}"}}}}
models: [{{match: "*", upstream: claude}}]
chains: {{default: []}}
state: {{kind: memory}}
"""


async def test_its_answers_arrive_and_its_cpu_is_counted(lab: Lab) -> None:
    request = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hi"}], "seed": 1}
    async with (
        fake_anthropic() as provider,
        proxy(CONFIG.format(url=provider.url), lab.folder) as base,
        aiohttp.ClientSession() as http,
    ):
        for stream in (False, True):
            async with http.post(f"{base}/v1/chat/completions", json={**request, "stream": stream}) as response:
                text = await response.text()
                assert response.headers["x-penstock-ignored"] == "seed"
                assert ('"content":"lo"' if stream else '"content":"hello"') in text
        assert text.endswith("data: [DONE]\n\n")
        assert '"usage"' not in text, "nobody asked for it"
        async with http.get(f"{base}/metrics") as response:
            lines = (await response.text()).splitlines()
    tokens = [line for line in lines if line.startswith("penstock_tokens_total") and 'kind="output"' in line]
    assert [float(line.split()[-1]) for line in tokens] == [14]

    [cpu] = [line for line in lines if line.startswith('penstock_upstream_cpu_seconds_total{upstream="claude"}')]
    assert float(cpu.split()[-1]) > 0.1  # loading litellm alone takes more
