"""Where state may be kept: the section `state`, and what is made of it."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.load import load
from proxy.config.settings import RedisStateSettings, Settings
from proxy.server.build import build_stores
from proxy.state.redis import RedisStore
from proxy.state.sqlite import SqliteStore

BASE = "version: 1\nupstreams: {echo: {kind: echo}}\nmodels: [{match: '*', upstream: echo}]\n"


NO_ADDRESSES = (
    *("http://:hunter2@h", "redis://:hunter2@", "redis://:hunter2@h:99999", "redis://:hunter2@h/0?ssl_cert_reqs=none"),
    *("unix://:hunter2@", "hunter2"),
)


def loaded(folder: Path, text: str) -> Settings:
    (folder / "config.yaml").write_text(BASE + text)
    return load(folder / "config.yaml", {"PASSWORD": "hunter2"}).settings


@pytest.mark.parametrize(("text", "kind"), [
    ("", SqliteStore),
    ("state: {max_mib: 8}", SqliteStore),
    ("state: {kind: disk, directory: x}", SqliteStore),
    ("state: {kind: memory}", SqliteStore),
    ("state: redis://h", RedisStore),
    ("state: {kind: redis, url: redis://h, prefix: 'a{b}', timeout: 2, connections: 3, largest_mib: 1}", RedisStore),
])  # fmt: skip
async def test_where_state_is_kept(tmp_path: Path, text: str, kind: type[Any]) -> None:
    store = build_stores(loaded(tmp_path, text)).store
    assert type(store) is kind
    await store.aclose()


@pytest.mark.parametrize("url", [
    *("redis://h", "redis://:${PASSWORD}@h:6379/15", "redis://user:p%40ss@[::1]:6379/0"),
    *("unix:///run/redis.sock", "unix://:p@/run/redis.sock"),
])  # fmt: skip
def test_an_address_alone_is_a_server(tmp_path: Path, url: str) -> None:
    state = loaded(tmp_path, f"state: '{url}'").state
    assert isinstance(state, RedisStateSettings)
    assert state.url.get_secret_value() == url.replace("${PASSWORD}", "hunter2")
    assert (state.prefix, state.timeout) == ("penstock", 0.5)
    assert not any(secret in repr(state) + str(state.model_dump()) for secret in ("hunter2", "p%40ss"))


@pytest.mark.parametrize(("text", "told"), [
    *((f"state: '{url}'", "must be an address like redis://") for url in NO_ADDRESSES),
    ("state: 'redis://:hunter2@h/zero'", "must end in the number of a database"),
    ("state: {kind: redis, password: hunter2}", "field required"),
    ("state: {kind: redis, url: redis://h, max_mib: 8}", "unknown key"),
    ("state: {kind: redis, url: redis://h, timout: 8}", "did you mean 'timeout'?"),
    ("state: {kind: rediss}", "did you mean 'redis'?"),
    ("state: [1]", "state"),
])  # fmt: skip
def test_what_is_wrong_is_told_without_the_password(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as failed:
        loaded(tmp_path, text)
    assert told in str(failed.value)
    assert "config.yaml:4" in str(failed.value)
    assert "hunter2" not in str(failed.value)


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, imported = loaded(tmp_path, "state: redis://h"), builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "proxy.state.redis":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install"):
        build_stores(settings)
