"""What Penstock's own endpoints refuse, in OpenAI's form: `refusals.txt` is the table."""

import io
import re
from pathlib import Path

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab

CONFIG = """
server: {admin_key: the-operator, max_body_mib: 0.5}
upstreams: {main: {kind: openai, base_url: "{url}", keyless: true}}
chains: {default: [], strict: [reject_oversize: {share: 0.00001}]}
memories: {max_import: 300, max_characters: 500}
auth: {kind: keys, file: keys.yaml, keys: [{name: bob, hash: {bob}}]}
"""
TABLE = Path(__file__).with_name("refusals.txt").read_text()
SECTIONS = re.findall(r"^\[(.+)\]\n((?:.+\n)+)", TABLE, re.MULTILINE)
ROW = re.compile(r"(\w+) (\S+)(?: \((\S+): (.+?)\))?(?: (.*))? => (\d+) (\w+)(?: at (\w+))?")
FIELDS = {"message", "type", "param", "code"}
ANN = {"x-penstock-session": "trip", "x-penstock-agent": "ann"}


@pytest.mark.parametrize(("section", "rows"), SECTIONS, ids=[name for name, _ in SECTIONS])
async def test_own_endpoints_refuse(lab: Lab, section: str, rows: str) -> None:
    file = lab.folder / "keys.yaml"
    file.write_text(keys := f"keys:\n- name: ann\n  hash: {hash_of('pk-ann')}\n")
    client = await lab.client(CONFIG, "the-operator" if "operator" in section else "pk-ann", bob=hash_of("pk-bob"))
    for row in rows.splitlines():
        found = ROW.fullmatch(re.sub(r"<(.+?)\*(\d+)>", lambda macro: macro[1] * int(macro[2]), row))
        assert found is not None, row
        method, path, name, value, body, status, code, param = found.groups()
        headers = {"content-type": "application/json", **(ANN if "ann" in section else {})}
        answer = await client.send(
            method, path, headers | ({name: value} if name else {}), data=io.BytesIO((body or "").encode())
        )
        error = answer.json["error"]
        assert ([str(answer.status), error["code"]], error.keys()) == ([status, code], FIELDS), row
        assert param in (None, error["param"]), row
    assert not lab.behind.received
    assert file.read_text() == keys
    for path in ("/v1/memories?limit=1000", "/v1/context/share"):
        assert (await client.get(path, ANN, key="pk-ann")).json["data"] == []
