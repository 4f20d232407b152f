"""The language of the games over turns: a small random model that has its words, prompts, and conversations to learn it from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from credit_language import HERE
from pydantic import Field
from random_llama import END, UNKNOWN, RandomLlama, known_words
from turn_environment import GameName
from turn_games import GAMES, game, numbers, played, vocabulary

from fgrl.kinds import Reader
from fgrl.registry import File, register
from fgrl.types import Sample


@register("turn_language_model")
class TurnLanguageModel(RandomLlama):
    """A random Llama with a token for each word of the games."""

    positions = 128

    hidden: int = Field(96, ge=8)
    """Width of the model; the feed-forward layers are three times as wide."""
    layers: int = Field(2, ge=1)
    """Number of transformer blocks."""
    games: Annotated[str, File] = str(HERE / "turn_games.py")
    """File that defines the language."""

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer, pre_tokenizers
        from tokenizers.models import WordLevel

        tokenizer = Tokenizer(WordLevel(known_words(vocabulary()), unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # lines of what the environment says are spaces, too
        return tokenizer


class OfGames(Reader):
    """Reader of games of a split."""

    split: Literal["train", "validation", "test"]
    """Split of the games; games of different splits are different."""
    count: int = Field(ge=1, le=1_000_000)
    """Number of games."""
    games: Annotated[str, File] = str(HERE / "turn_games.py")
    """File that defines the games."""


@register("turn_prompts")
class TurnPrompts(OfGames):
    """Reader of prompts of one game, with the answer that the policy has to find out."""

    task: GameName
    """Name of the game."""

    def read(self) -> Iterator[Sample]:
        for number in numbers(self.split, self.count):
            each = game(self.task, number)
            name = f"{self.task}-{number}"
            yield Sample(id=name, prompt=each.prompt, reference=each.answer, meta={"game": number})


@register("turn_conversations")
class TurnConversations(OfGames):
    """Reader of conversations with a player who is often wrong, to learn the language from."""

    def read(self) -> Iterator[Sample]:
        draw = random.Random(0)
        for number in numbers(self.split, self.count):
            for name in GAMES:
                each = game(name, number)
                *before, (last, _told) = played(each, draw)
                said = " ".join([*(f"{move} {END} {told}" for move, told in before), last])
                yield Sample(id=f"{name}-{number}", prompt=each.prompt, reference=said)
