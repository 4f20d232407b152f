"""Which tokens end an answer."""

from __future__ import annotations

from typing import Any


def end_tokens(tokenizer: Any, generation: Any) -> set[int]:
    """Every token that ends a response: those of the generation settings, of the tokenizer, and of the chat template."""
    named = getattr(generation, "eos_token_id", None)
    ends = set(named) if isinstance(named, list | tuple | set) else {named}
    ends |= {tokenizer.eos_token_id, _after_an_answer(tokenizer)}
    ids = {int(token) for token in ends if token is not None}
    if not ids:
        raise ValueError("the model defines no end-of-sequence token, neither in its settings nor in its tokenizer")
    return ids


def end_of_answer(tokenizer: Any, eos_ids: set[int]) -> int:
    """The token that ends an answer: the one that the chat template puts after it, else the tokenizer's own."""
    after = _after_an_answer(tokenizer)
    if after in eos_ids:
        return int(after)  # type: ignore[arg-type]
    return int(tokenizer.eos_token_id) if tokenizer.eos_token_id in eos_ids else min(eos_ids)


def _after_an_answer(tokenizer: Any) -> int | None:
    """The special token that the chat template puts directly after an assistant's turn, or None."""
    if not tokenizer.chat_template:
        return None
    answer = "0"
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    tail = text[text.rindex(answer) + 1 :].strip()
    ids = tokenizer(tail, add_special_tokens=False).input_ids if tail else []
    return ids[0] if ids and ids[0] in tokenizer.all_special_ids else None
