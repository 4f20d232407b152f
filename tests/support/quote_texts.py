"""Texts of many scripts for property tests, and two kinds of tokenizer trained on them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

PIECES = [
    "the", "sea", " mill", "The old mill", "a", "aa", "e", "E", "1", ",", ".", ": ", "'", '"', "“", "”", "‘", "’", "«", "»",
    "-", "–", "—", "…", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\u00ad", "\ufeff",
    "é", "e\u0301", "\u0301", "ö", "o\u0308\u0323", "ñ", "ß", "ﬁ", "①", "ｆｕｌｌ", "½", "´", "²", "ſ", "Å", "\u212b",
    "Привет", "мир", "ий", "и\u0306", "γειά", "σς", "שָׁלוֹם", "مرحبا", "لا", "\u064b", "नमस्ते", "क्षि", "สวัสดี", "ก็", "தமிழ்",
    "你好", "世界。", "、", "「海」", "日本", "が", "か\u3099", "ｶﾞ", "한국", "각", "\u1112\u1161\u11ab", "\u1100\u1161",
    "🎉", "👩\u200d🚀", "👨\u200d👩\u200d👧", "👍🏽", "❤️", "❤", "🇩🇪", "🇫🇷", "\U0001f3fd", "\u200d", "\ufe0f", "𝔸", "𐍈", "\u0e33",
]  # fmt: skip
"""Letters and marks of many scripts, with all that Unicode can do to a comparison."""

texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=8).map("".join),
    st.text(max_size=20),
    st.text("ab ", max_size=16),
)
CORPUS = [
    "The old mill stands by the sea, and the sea is brown; “here”, she said — ‘never’.",
    "Привет, мир! Река течёт мимо старой мельницы. γειά σου κόσμε",
    "你好，世界。河流经过老磨坊。こんにちは世界、「海」が見える。한국어 문장도 있다. สวัสดีชาวโลก",
    "שָׁלוֹם עולם مرحبا بالعالم नमस्ते दुनिया தமிழ் 🎉🎉 👩‍🚀 🇩🇪 ❤️ é e\u0301",
]


@cache
def byte_level() -> Any:
    """Byte-level BPE, as GPT-2, Llama 3 and Qwen have: any text comes back as it was."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<eos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", clean_up_tokenization_spaces=False)


@cache
def metaspace() -> Any:
    """Unigram with marked spaces and bytes as a last resort, as sentencepiece trains them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    words = " ".join(line for line in CORPUS if line.isascii() or "Привет" in line or "mill" in line)
    trained.train_from_iterator([words], trainers.UnigramTrainer(vocab_size=90, show_progress=False))
    learnt = [(piece, trained.token_to_id(piece)) for piece in trained.get_vocab()]
    pieces = [("<unk>", 0.0), ("<eos>", 0.0), *((f"<0x{byte:02X}>", -20.0) for byte in range(256))]
    pieces += [(piece, -3.0 - 0.05 * number) for piece, number in sorted(learnt, key=lambda one: one[1])]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", clean_up_tokenization_spaces=False
    )


TOKENIZERS = {"byte_level": byte_level, "metaspace": metaspace}


def bytes_of(kind: str, tokenizer: Any, ids: list[int]) -> list[bytes]:
    """The bytes that each token stands for, read off the vocabulary: no decoder is asked."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {character: byte for byte, character in bytes_to_unicode().items()}
    pieces = []
    for token in tokenizer.convert_ids_to_tokens(ids):
        if token == "<eos>":
            pieces.append(b"")
        elif kind == "byte_level":
            pieces.append(bytes(table[character] for character in token))
        elif token.startswith("<0x"):
            pieces.append(bytes([int(token[3:5], 16)]))
        else:
            pieces.append(token.replace("▁", " ").encode())
    if kind == "metaspace" and pieces and pieces[0].startswith(b" "):
        pieces[0] = pieces[0][1:]  # the mark in front of the first word is no space
    return pieces
