"""A random Llama with a token for each word of a small language: the model that learns the language first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fgrl import models
from fgrl.kinds import Run, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Checkpoint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unknown>"


class RandomLlama(Stage):
    """A random Llama. A subclass has the words and the tokenizer of its language."""

    makes = Checkpoint
    positions: ClassVar[int] = 256
    """Maximum number of tokens of a text."""

    hidden: int = Field(ge=8)
    """Width of the model; the feed-forward layers are three times as wide."""
    layers: int = Field(ge=1)
    """Number of transformer blocks."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the language; its first tokens are `PAD`, `END` and `UNKNOWN`."""
        raise NotImplementedError

    def run(self, run: Run) -> dict[str, Any]:
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        tokenizer = self.tokenizer()
        config = LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=self.hidden, intermediate_size=3 * self.hidden,
            num_hidden_layers=self.layers, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=self.positions,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        folder = run.dir / "random"
        network = LlamaForCausalLM(config)
        network.save_pretrained(folder)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
        fast.save_pretrained(folder)
        models.save(models.load(ModelSpec(base=str(folder))), run.out, {})
        return {"words": config.vocab_size, "parameters": sum(each.numel() for each in network.parameters())}


def known_words(words: list[str]) -> dict[str, int]:
    """Return the numbers of the tokens."""
    return {word: number for number, word in enumerate([PAD, END, UNKNOWN, *words])}
