"""`/admin/replays`: two chains of the configuration on recorded conversations, compared in a process of its own."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from proxy.chat.errors import BadRequest, NotFound, PenstockError, Rejected
from proxy.server.api.endpoint import JsonFields, answered, as_fault, json_object, valid
from proxy.server.api.requests import RecordsApi, without_text
from proxy.server.reload import Reloading
from proxy.state.background import BackgroundWork
from proxy.state.store import StoreError
from proxy.state.workers import Peers, Question

_MOST = 50
_LONGEST_LINE = 2**24
_TEXTS = ("before", "after", "tools_before", "tools_after")


class _Comparison(JsonFields):
    chain: str | None = None
    against: str | None = None
    ids: list[str] = Field(default=[], max_length=_MOST)
    newest: int = Field(default=10, ge=1, le=_MOST)


class ReplaysApi:
    """The comparison that runs, or the last one; one at a time in all workers of this server."""

    def __init__(self, reloading: Reloading, records: RecordsApi, peers: Peers) -> None:
        self._reloading, self._records, self._peers = reloading, records, peers
        self._work = BackgroundWork[str]()
        self._job: dict[str, Any] = {"state": "none", "started": 0.0}
        peers.on("replay", self._here)
        peers.on("cancel_replay", self._cancel_here)

    async def begin(self, request: Request) -> Response:
        asked, known = valid(_Comparison, await json_object(request)), self._reloading.settings.chains
        sides = {"chain": asked.chain or "", "against": asked.against or ""}
        for name, chain in sides.items():
            if chain and chain not in known:
                told = f"{name}={chain[:40]!r} is not a chain; known: {', '.join(known)}"
                raise BadRequest(told, param=name, code="invalid_value")
        if not self._records.has_text:
            raise without_text()
        last = self._job
        if last["state"] == "running" or self._work:
            raise _running()
        job = {"state": "running", "started": time.time(), "played": 0, "requests": 0, "without_text": 0}
        job |= {**sides, "report": None, "error": None}
        self._job = job
        # of two workers that begin at once, each sees the other's: the first one goes on
        others = await self._peers.ask({"ask": "replay"})
        if any(other["state"] == "running" and other["started"] <= job["started"] for other in others):
            self._job = last
            raise _running()
        self._work.begin(self._run(job, [*sides.values()], asked.ids, asked.newest), "replay")
        return answered(job, 202)

    async def get(self, request: Request) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = await self._peers.ask_all("replay")
        latest = max(jobs, key=lambda job: (job["state"] == "running", job["started"]))
        return {**latest, "text": self._records.has_text}

    async def cancel(self, request: Request) -> dict[str, Any]:
        await self._peers.ask_all("cancel_replay")
        return await self.get(request)

    async def aclose(self) -> None:
        await self._work.aclose()

    async def _here(self, question: Question) -> dict[str, Any]:
        return self._job

    async def _cancel_here(self, question: Question) -> bool:
        await self._work.aclose()
        return True

    async def _run(self, job: dict[str, Any], chains: Sequence[str], ids: Sequence[str], newest: int) -> None:
        try:
            with tempfile.TemporaryFile() as file:  # without a name: nothing stays, however this process ends
                await self._write(file, job, ids or await self._records.newest(newest))
                await self._compare(file, job, chains)
        except (PenstockError, StoreError) as error:
            job["error"] = as_fault(error).message
        except OSError as error:
            job["error"] = f"the comparison cannot run: {error.strerror}"
        except asyncio.CancelledError:
            job["state"] = "cancelled"
            raise
        finally:
            if job["state"] == "running":
                job["state"] = "failed" if job["report"] is None else "done"

    async def _write(self, file: IO[bytes], job: dict[str, Any], ids: Sequence[str]) -> None:
        for id in dict.fromkeys(ids):
            requests = []
            with suppress(NotFound):
                requests = [each for each in (await self._records.recorded(id))["requests"] if _is_whole(each)]
            job["without_text"] += not requests
            await asyncio.to_thread(_append, file, requests)
        if not file.tell():
            raise BadRequest("no text is kept of these conversations", code="records_without_text")
        await asyncio.to_thread(file.seek, 0)

    async def _compare(self, file: IO[bytes], job: dict[str, Any], chains: Sequence[str]) -> None:
        command = (sys.executable, "-m", "proxy.server.replay.run", str(self._reloading.current.config.path.absolute()))
        process = await asyncio.create_subprocess_exec(
            *command, *chains, stdin=file, stdout=asyncio.subprocess.PIPE, limit=_LONGEST_LINE
        )
        try:
            async for line in cast(asyncio.StreamReader, process.stdout):
                job |= orjson.loads(line)
            if await process.wait() or job["report"] is None:
                job["error"] = job["error"] or f"the comparison ended with code {process.returncode}"
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _running() -> Rejected:
    return Rejected("a comparison runs already; wait for it, or cancel it", code="replay_running", status=409)


def _is_whole(record: Mapping[str, Any]) -> bool:
    text = record.get("text") or {}  # nothing stands before a request of Responses that has no input
    return bool(record.get("model") and text.get("before")) and not any(
        None in (text.get(name) or ()) for name in _TEXTS
    )


def _append(file: IO[bytes], requests: Sequence[Mapping[str, Any]]) -> None:
    if requests:
        file.write(orjson.dumps({"requests": requests}) + b"\n")
