"""What length.yaml trains: a model of 0.2 million weights that knows one token per word, and answers of which most words are wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

from length_words import WORDS
from pydantic import Field

from fgrl import models
from fgrl.kinds import Reader, Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import register
from fgrl.types import Checkpoint, Sample

NUMBERS, HELD_OUT = 40, 8
"""Each topic has this many prompts (the topic and a number), of which the last ones are held out."""
RIGHT = 0.35
"""Share of the words of the answers to learn from that belong to the topic."""
SHORTEST, LONGEST = 4, 9
"""Words of these answers."""
HIDDEN, LAYERS = 64, 2
"""Size of the model."""


@register("word_model")
class WordModel(Stage):
    """A small random Llama with a token for each word of the topics."""

    makes = Checkpoint

    def run(self, run: Run) -> dict[str, Any]:
        from tokenizers import Tokenizer, pre_tokenizers
        from tokenizers.models import WordLevel
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        words = [*WORDS, *(word for own in WORDS.values() for word in own), *map(str, range(NUMBERS))]
        vocabulary = {word: i for i, word in enumerate(["<pad>", "<end>", "<unknown>", *words])}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unknown>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        config = LlamaConfig(
            vocab_size=len(vocabulary), hidden_size=HIDDEN, intermediate_size=2 * HIDDEN,
            num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        folder = run.dir / "random"
        LlamaForCausalLM(config).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>").save_pretrained(
            folder
        )
        models.save(models.load(ModelSpec(base=str(folder))), run.out, {})
        return {"words": len(words)}


@register("topic_words")
class TopicWords(Reader):
    """Prompts such as `sea 17`, with answers of a writer who is wrong more often than not, or to be answered."""

    part: Literal["answers", "prompts", "held_out"]
    """`answers`: written for every prompt but the held-out ones. `prompts`: the same, without answers. `held_out`: the others."""
    copies: int = Field(1, ge=1)
    """Answers to each prompt."""

    def read(self) -> Iterator[Sample]:
        draw = random.Random(0)
        numbers = range(NUMBERS - HELD_OUT, NUMBERS) if self.part == "held_out" else range(NUMBERS - HELD_OUT)
        for copy in range(self.copies):
            for number in numbers:
                for topic in WORDS:
                    answer = _answer(topic, draw) if self.part == "answers" else None
                    yield Sample(id=f"{topic}-{number}-{copy}", prompt=f"{topic} {number}", reference=answer)


def _answer(topic: str, draw: random.Random) -> str:
    own = draw.sample(WORDS[topic], len(WORDS[topic]))
    others = [word for other, words in WORDS.items() if other != topic for word in words]
    length = draw.randint(SHORTEST, LONGEST)
    return " ".join(own.pop() if own and draw.random() < RIGHT else draw.choice(others) for _ in range(length))
