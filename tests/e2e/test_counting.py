"""`/metrics` has the figures of what requests went through, over sockets: each finding counts once in a conversation."""

from tests.e2e.conftest import Client, Lab
from tests.e2e.test_recall import CONVERSATION, TOOLS, handle_in
from tests.e2e.test_recall import model as recalling

CONFIG = """
chains: {default: [{chain}]}
"""


async def running(lab: Lab, chain: str) -> Client:
    return await lab.client(CONFIG, "k", chain=chain)


async def counted(client: Client, *names: str) -> list[float]:
    """The values of these series; 0 for one that is not there."""
    return [await client.metric(f"penstock_{name} ") for name in names]


async def test_memories_are_counted_by_what_became_of_them(lab: Lab) -> None:
    client = await running(lab, "{select_memories: {}}")
    for text in ("The user drinks green tea", "The user drinks green tea.", "Lives in Bremen"):
        made = await client.post("/v1/memories", {"text": text, "user": "ann"})
    await client.get("/v1/memories?user=ann&query=tea")
    assert (await client.send("DELETE", f"/v1/memories/{made.json['id']}?user=ann")).status == 200
    said = [{"role": "user", "content": "Which green tea does the user drink?"}]
    await client.chat(messages=said, user="ann")
    said += [{"role": "assistant", "content": "Sencha."}, {"role": "user", "content": "Thank you!"}]
    await client.chat(messages=said, user="ann")
    changes = [f'memories_total{{change="{each}"}}' for each in ("added", "repeated", "deleted", "refused")]
    assert await counted(client, *changes) == [2, 1, 1, 0]
    assert await counted(
        client,
        'memory_searches_total{found_by="words"}',
        'memories_selected_total{policy="select_memories"}',
        'memory_searches_total{found_by="failed"}',
        'policy_verdicts_total{mode="enforce",policy="select_memories",verdict="rewrite"}',
        'policy_duration_seconds_count{policy="select_memories"}',
    ) == [2, 1, 0, 1, 2]
    (size,) = await counted(client, "memory_written_bytes_total")
    assert size > len("The user drinks green tea")


async def test_what_leaves_is_written_once_and_each_look_at_it_is_a_read(lab: Lab) -> None:
    names = ('scratchpad_writes_total{kind="original"}', 'scratchpad_reads_total{kind="original"}')
    client = await running(lab, "{compact_tool_results: {over: 600, read_again: 0}}, {offer_recall: {}}")
    lab.behind.respond = recalling
    for times in (1, 2):
        await client.chat(messages=CONVERSATION, tools=TOOLS)
        assert await counted(client, *names) == [1, times]
    handle = handle_in(lab.behind.received[0].body)
    statuses = [(await client.get(f"/v1/retrieve/{each}")).status for each in (handle, "a" * 20)]
    assert statuses == [200, 404]
    assert await counted(client, *names) == [1, 3], "what is not there is not read"
