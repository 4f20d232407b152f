"""The language of the games over turns: a small random model that has its words, prompts, and conversations to learn it from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from credit_language import HERE
from pydantic import Field
from turn_environment import GameName
from turn_games import GAMES, game, numbers, played, vocabulary

from fgrl import models
from fgrl.kinds import Reader, Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import File, register
from fgrl.types import Checkpoint, Sample

END = "<eos>"


@register("turn_language_model")
class TurnLanguageModel(Stage):
    """A random Llama with a token for each word of the games."""

    makes = Checkpoint

    hidden: int = Field(96, ge=8)
    """Width; the feed-forward layers are three times as wide."""
    layers: int = Field(2, ge=1)
    """Number of transformer blocks."""
    games: Annotated[str, File] = str(HERE / "turn_games.py")
    """The file that defines the language."""

    def run(self, run: Run) -> dict[str, Any]:
        from tokenizers import Tokenizer, pre_tokenizers
        from tokenizers.models import WordLevel
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        words = {word: i for i, word in enumerate(["<pad>", END, "<unknown>", *vocabulary()])}
        tokenizer = Tokenizer(WordLevel(words, unk_token="<unknown>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # lines of what the environment says are spaces, too
        config = LlamaConfig(
            vocab_size=len(words), hidden_size=self.hidden, intermediate_size=3 * self.hidden,
            num_hidden_layers=self.layers, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        folder = run.dir / "random"
        network = LlamaForCausalLM(config)
        network.save_pretrained(folder)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token="<pad>")
        fast.save_pretrained(folder)
        models.save(models.load(ModelSpec(base=str(folder))), run.out, {})
        return {"words": len(words), "parameters": sum(each.numel() for each in network.parameters())}


class OfGames(Reader):
    """Games of a split."""

    split: Literal["train", "validation", "test"]
    """Games of different splits are different."""
    count: int = Field(ge=1, le=1_000_000)
    """Number of games."""
    games: Annotated[str, File] = str(HERE / "turn_games.py")
    """The file that defines the games."""


@register("turn_prompts")
class TurnPrompts(OfGames):
    """Prompts of one game, and what the policy is to find out."""

    task: GameName
    """The game."""

    def read(self) -> Iterator[Sample]:
        for number in numbers(self.split, self.count):
            each = game(self.task, number)
            name = f"{self.task}-{number}"
            yield Sample(id=name, prompt=each.prompt, reference=each.answer, meta={"game": number})


@register("turn_conversations")
class TurnConversations(OfGames):
    """Conversations with a player who is often wrong, to learn the language from."""

    def read(self) -> Iterator[Sample]:
        draw = random.Random(0)
        for number in numbers(self.split, self.count):
            for name in GAMES:
                each = game(name, number)
                *before, (last, _told) = played(each, draw)
                said = " ".join([*(f"{move} {END} {told}" for move, told in before), last])
                yield Sample(id=f"{name}-{number}", prompt=each.prompt, reference=said)
