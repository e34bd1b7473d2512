"""Replays conversations: each request of each one, in order, through a chain."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.chat import Message, encode
from proxy.chat.errors import ConfigError, PenstockError
from proxy.chat.parse import Body
from proxy.config.settings import Settings
from proxy.server.replay.player import Explained, Player, open_player
from proxy.server.replay.reading import Conversation, Point
from proxy.server.replay.score import Scoring, Turn


class Replayed(NamedTuple):
    """A conversation and the score of its turns."""

    name: str
    source: str
    turns: Sequence[Turn]


async def replay(
    settings: Settings,
    conversations: Sequence[Conversation],
    *,
    chain: str | None = None,
    model: str | None = None,
    told: Callable[[int], None] = lambda turns: None,
) -> list[Replayed]:
    """Play conversations, each with nothing that the others left. `told` hears of each turn that is done.

    `chain` is run instead of the model's own; `model` is asked instead of the one that the requests name. Raises
    `PenstockError` for what the proxy would refuse before the chain runs.
    """
    found = []
    async with open_player(settings) as player:
        for conversation in conversations:
            await player.forget()
            found.append(await _play(player, conversation, chain, model, told))
    return found


async def _play(
    player: Player, conversation: Conversation, chain: str | None, model: str | None, told: Callable[[int], None]
) -> Replayed:
    scoring, turns, at = Scoring(player), list[Turn](), 0.0
    last = len(conversation.points) - 1
    for place, point in enumerate(conversation.points):
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
        turns.append(await scoring.turn(played, point, at, is_last=place == last))
        answer = None if point.answer is None else Message(point.answer)
        await player.commit(played, answer, point.usage if _is_as_recorded(played, point) else None)
        told(1)
    return Replayed(conversation.name, conversation.source, turns)


def _body(point: Point, model: str | None) -> bytes:
    if not (model or point.body.get("model")):
        raise ConfigError("the file names no model: say which with --model")
    raw = encode(point.body) if point.raw is None else point.raw
    return Body(raw).encoded({"model": model}) if model else raw


def _is_as_recorded(played: Explained, point: Point) -> bool:
    """Whether what would be sent is what the upstream reported on."""
    sent = point.body if point.sent is None else point.sent
    return list(played.outcome.request.messages) == sent.get("messages")
