"""A provider behind litellm, through the running proxy: litellm works in a process of its own."""

from contextlib import AsyncExitStack

from tests.e2e.conftest import Lab
from tests.upstreams.foreign.fake_anthropic import fake_anthropic

CONFIG = """
upstreams: {claude: {kind: foreign, provider: anthropic, base_url: "{url}"}}
models: [{match: "*", upstream: claude}]
"""


async def test_its_answers_arrive_and_its_cpu_is_counted(lab: Lab) -> None:
    async with fake_anthropic() as provider, AsyncExitStack() as lab.stack:
        client = await lab.client(CONFIG, url=provider.url)
        for stream in (False, True):
            answer = await client.chat("Hi", "claude-sonnet-4-5", seed=1, stream=stream)
            assert answer.headers["x-penstock-ignored"] == "seed"
            assert (b'"content":"lo"' if stream else b'"content":"hello"') in answer.body
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert b'"usage"' not in answer.body, "nobody asked for it"
        lines = (await client.metrics()).splitlines()
        cpu = await client.metric('penstock_upstream_cpu_seconds_total{upstream="claude"}')
    tokens = [line for line in lines if line.startswith("penstock_tokens_total") and 'kind="output"' in line]
    assert [float(line.split()[-1]) for line in tokens] == [14]
    assert cpu > 0.1  # loading litellm alone takes more
