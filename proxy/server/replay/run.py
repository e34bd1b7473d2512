"""Replays conversations: each request of each one, in order, through a chain."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.chat import Message, encode
from proxy.chat.errors import ConfigError, PenstockError
from proxy.chat.parse import Body
from proxy.config.settings import Settings
from proxy.server.replay.player import Explained, Player, open_player
from proxy.server.replay.reading import Conversation, RecordedRequest
from proxy.server.replay.score import ScoredRequest, Scoring


class Replayed(NamedTuple):
    """A conversation and the score of its turns."""

    name: str
    source: str
    turns: list[ScoredRequest]


async def replay(
    settings: Settings,
    conversations: Sequence[Conversation],
    *,
    chain: str | None = None,
    model: str | None = None,
    told: Callable[[int], None] = lambda turns: None,
) -> list[Replayed]:
    """Play conversations. `told` hears of each turn that is done.

    Those whose requests have times are played together, in the order in which the requests came; each of the others by
    itself, with nothing that the others left. `chain` is run instead of the model's own; `model` is asked instead of
    the one that the requests name. Raise `PenstockError` for what the proxy would refuse before the chain runs.
    """
    found = [Replayed(each.name, each.source, []) for each in conversations]
    timed = {place for place, each in enumerate(conversations) if all(point.at is not None for point in each.points)}
    groups = [[place] for place in range(len(conversations)) if place not in timed] + [sorted(timed)]
    async with open_player(settings) as player:
        for group in filter(None, groups):
            await player.forget()
            await _play(player, {place: conversations[place] for place in group}, found, chain, model, told)
    return found


async def _play(
    player: Player,
    conversations: Mapping[int, Conversation],
    found: Sequence[Replayed],
    chain: str | None,
    model: str | None,
    told: Callable[[int], None],
) -> None:
    scorings, at = {each: Scoring(player) for each in conversations}, 0.0
    points = [(n, place) for n, each in conversations.items() for place in range(len(each.points))]
    if len(conversations) > 1:
        points.sort(key=lambda each: conversations[each[0]].points[each[1]].at or 0.0)
    for n, place in points:
        conversation, point = conversations[n], conversations[n].points[place]
        at = max(at, point.at or 0.0)
        try:
            played = await player.play(
                _body(point, model),
                chain=chain,
                headers=point.headers,
                at=at or None,
                conversation=conversation.name,
            )
        except PenstockError as error:
            error.args = (f"{conversation.name}, request {place + 1}: {error}",)
            raise
        is_last = place == len(conversation.points) - 1
        found[n].turns.append(await scorings[n].turn(played, point, at, is_last=is_last))
        answer = None if point.answer is None else Message(point.answer)
        await player.commit(played, answer, point.usage if _is_as_recorded(played, point) else None)
        told(1)


def _body(point: RecordedRequest, model: str | None) -> bytes:
    if not (model or point.body.get("model")):
        raise ConfigError("the file names no model: say which with --model")
    raw = encode(point.body) if point.raw is None else point.raw
    return Body(raw).encoded({"model": model}) if model else raw


def _is_as_recorded(played: Explained, point: RecordedRequest) -> bool:
    """Return whether what would be sent is what the upstream reported on."""
    sent = point.body if point.sent is None else point.sent
    return list(played.outcome.request.messages) == sent.get("messages")
