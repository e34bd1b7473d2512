"""`penstock keys new NAME --file F`: an entry more, and nothing else changed."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import yaml

from proxy.__main__ import main
from proxy.chat.errors import ConfigError
from proxy.config.document import Document, Sources
from proxy.config.keys_file import add_entry, entry_of, hash_of, new_key, remove_entry
from proxy.config.load import keys_of

HASH = "b" * 64


def new(file: Path, name: str = "ann", *more: str) -> int:
    return main(["keys", "new", name, "--file", str(file), *more])


def names(file: Path) -> list[str]:
    return [key.name for key in keys_of(Document(file, file.read_text(), Sources({})))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


def test_makes_a_file_for_its_owner_and_prints_the_key_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(file, "ann", "--tenant", "acme ${HOME} $$ é") == 0
    (key,) = re.findall(r"pk-[a-z2-7]{52}", capsys.readouterr().out)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (made,) = keys_of(Document(file, file.read_text(), Sources({})))
    assert (made.name, made.hash, made.tenant) == ("ann", hash_of(key), "acme ${HOME} $$ é")
    assert key not in file.read_text()
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("text", [
    pytest.param("", id="empty"),
    pytest.param("# ours\nkeys: [ ]  # nobody yet\n# end\n", id="an empty list among comments"),
    pytest.param(f"keys:\n- name: bob  # on leave\n  hash: {HASH}\n", id="entries without indentation"),
    pytest.param(f"keys:\r\n  - {{name: bob, hash: {HASH}}}\r\n", id="another end of lines"),
    pytest.param(f"---\nkeys: # all\n  -\n    name: bob\n    hash: {HASH}\n\n\n", id="a dash alone"),
    pytest.param(f"keys: [{{name: bob, hash: {HASH}}},  # [x]\n]\n", id="in brackets, with a last comma"),
    pytest.param(f'{{"keys": [{{"name": "bob", "hash": "{HASH}"}}]}}', id="JSON"),
    pytest.param(f"\ufeff# é\nkeys: [{{name: bob, hash: {HASH}}}]\n", id="a byte order mark"),
])  # fmt: skip
def test_all_that_stood_there_stays(text: str, file: Path) -> None:
    file.write_bytes(text.encode())
    file.chmod(0o640)
    before = yaml.safe_load(text) or {"keys": []}
    assert new(file) == 0
    assert new(file, "cyd") == 0
    after = file.read_bytes().decode()
    entries = yaml.safe_load(after)["keys"]
    assert [each for each in entries if each["name"] not in ("ann", "cyd")] == before["keys"]
    assert {each["name"] for each in entries} >= {"ann", "cyd"}
    # the old text is there in order: nothing was taken out or written anew
    place = -1
    for sign in text:
        place = after.index(sign, place + 1)
    assert re.findall("#.*", after) == re.findall("#.*", text)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize(("text", "told"), [
    (f"keys:\n- {{name: ann, hash: {HASH}}}\n", "keys.yaml:2: keys.0.name: a key is called 'ann' already"),
    (f"keys:\n- {{name: bob, hsh: {HASH}}}\n", "keys.yaml:2: keys.0.hsh: unknown key; did you mean 'hash'?"),
    ("keys:\n- [\n", "keys.yaml:3: not valid YAML"),
    ("keys: []\n...\n# over\n---\n", "keys.yaml:4: not valid YAML"),
    (f"keys:\n- {{name: bob, hash: {HASH}}}\n...\n", "keys.yaml: cannot add to a file of this form"),
    ("{}\n", "keys.yaml: cannot add to a file of this form"),
    (b"keys: [] # \xff", "keys.yaml: cannot be read: it is not UTF-8"),
])  # fmt: skip
def test_what_cannot_be_added_is_one_line_and_changes_nothing(
    text: str | bytes, told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(content)
    assert new(file) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith(f"penstock: {file.parent}/{told}")
    assert file.read_bytes() == content
    assert list(file.parent.iterdir()) == [file]


def test_a_name_is_left_if_only_missing_ones_are_wanted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(file, "ann", "--if-missing") == 0
    assert "pk-" in capsys.readouterr().out
    before = file.read_bytes()
    file.parent.chmod(0o500)  # it also holds where nothing can be written
    try:
        assert new(file, "ann", "--if-missing") == 0
    finally:
        file.parent.chmod(0o700)
    printed = capsys.readouterr()
    assert printed.out == f"# {file} already has a key named 'ann': nothing to do\n"
    assert (printed.err, file.read_bytes()) == ("", before)
    assert main(["keys", "new", "ann", "--if-missing"]) == 1
    assert capsys.readouterr().err == "penstock: --if-missing needs --file\n"


def test_no_folder_and_no_file_that_can_be_read_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, told in (
        (tmp_path / "none" / "keys.yaml", f"{tmp_path}/none: No such file or directory"),
        (tmp_path, f"{tmp_path}: cannot be read: Is a directory"),
        # a file system that takes no file, whoever asks
        (Path("/proc/keys.yaml"), "/proc/keys.yaml: cannot be written: [A-Z][a-z ]+"),
    ):
        assert new(place) == 1
        printed = capsys.readouterr()
        assert printed.out == "", "no key is shown"
        assert re.fullmatch(f"penstock: {told}\n", printed.err)


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file, link = tmp_path / "real" / "keys.yaml", tmp_path / "keys.yaml"
    file.write_text("keys: []\n")
    link.symlink_to(file)
    assert new(link) == 0
    assert link.is_symlink()
    assert names(file) == ["ann"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the owner of a file is NOT changed: only root can")
def test_the_owner_stays(file: Path) -> None:
    file.write_text("keys: []\n")
    os.chown(file, 65532, 65532)
    assert new(file) == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (65532, 65532)


def test_of_several_at_once_none_is_lost(file: Path) -> None:
    wanted = [f"n{number:02}" for number in range(16)]
    together = Barrier(len(wanted))

    def add(name: str) -> bool:
        together.wait()
        return add_entry(file, name, entry_of(name, new_key()))

    with ThreadPoolExecutor(len(wanted)) as pool:
        assert all(pool.map(add, wanted))
    assert sorted(names(file)) == wanted


@pytest.mark.parametrize(("text", "remaining"), [
    ("# ours\nkeys:\n- name: bob  # away\n  hash: {a}\n# of ann\n- name: ann\n  hash: {b}\n# last\n",
     "# ours\nkeys:\n# of ann\n- name: ann\n  hash: {b}\n# last\n"),
    ("keys:\n\n    - hash: {b}\n      name: ann\n    - hash: {a}\n      models:\n        - x\n      name: bob\n\n# last",
     "keys:\n\n    - hash: {b}\n      name: ann\n\n# last"),
    ("---\nkeys: # all\n  -\n    name: bob\n    hash: {a}\n\n# end\n", "---\nkeys: # all\n  []\n\n# end\n"),
    ("keys:\r\n  - {{name: ann, hash: {b}}}\r\n  - {{name: bob, hash: {a}}}\r\n", "keys:\r\n  - {{name: ann, hash: {b}}}\r\n"),
    ("keys: [{{name: bob, hash: {a}}},  # [x]\n {{name: ann, hash: {b}}}]\n", "keys: [{{name: ann, hash: {b}}}]\n"),
    ("keys: [{{name: ann, hash: {b}}}, {{name: bob, hash: {a}}}]\n", "keys: [{{name: ann, hash: {b}}}]\n"),
    ('{{"keys": [{{"name": "bob", "hash": "{a}"}}]}}', '{{"keys": []}}'),
    ("keys: [{{name: bob, hash: {a}}}]\n", "keys: []\n"),
    ("keys: [{{name: bob, hash: {a}}},]\n", None),
    ("keys:\n- &b {{name: bob, hash: {a}}}\n", "keys:\n  []\n"),
])  # fmt: skip
def test_an_entry_leaves_and_nothing_else(text: str, remaining: str | None, file: Path) -> None:
    text, wanted = text.format(a="a" * 64, b=HASH), remaining and remaining.format(b=HASH)
    file.write_bytes(text.encode())
    file.chmod(0o640)
    if wanted is None:
        with pytest.raises(ConfigError, match="remove the entry of 'bob' yourself"):
            remove_entry(file, "bob")
        assert file.read_bytes().decode() == text
        return
    assert remove_entry(file, "bob")
    assert file.read_bytes().decode() == wanted
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not remove_entry(file, "bob")
