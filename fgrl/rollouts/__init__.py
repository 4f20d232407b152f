"""From prompts to rollouts: encoding, padding, sampling, and the scores that somebody needs.

Token ids are made once. A sampled response is never decoded and encoded again; texts and character offsets come from
the very ids that were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fgrl import lazy
from fgrl.errors import DataError
from fgrl.specs import Sampling
from fgrl.types import Message, Rollout, Sample, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
    from fgrl.kinds import Engine
    from fgrl.models import LanguageModel
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")

NEEDS = frozenset({"old_logp", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "text"})
"""What `collect` can be asked for."""

Cut = Literal["end", "drop"]


# -- text to ids -------------------------------------------------------------------------------------------------------


def encode_prompt(tokenizer: Any, prompt: str | Sequence[Message], max_tokens: int | None = None) -> list[int]:
    """Token ids of a prompt, ready for an answer to follow.

    With a chat template, text is one user turn and the template is rendered straight to ids, up to the head of the
    answer; without one, the text is encoded as it is. A prompt longer than `max_tokens` loses its beginning (the
    beginning-of-sequence token stays). Two such tokens in a row are refused: every later probability would be off.
    """
    if isinstance(prompt, str) and not tokenizer.chat_template:
        ids = list(tokenizer(prompt).input_ids)
        if ids and ids[-1] == tokenizer.eos_token_id:  # some tokenizers close what they encode
            ids.pop()
    else:
        if not tokenizer.chat_template:
            raise DataError("the prompt is a chat, but this tokenizer has no chat template; use a text prompt")
        turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        ids = list(
            tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
        )
    bos = tokenizer.bos_token_id
    if bos is not None:
        if ids[:2] == [bos, bos]:
            raise DataError(
                f"the prompt starts with two {tokenizer.bos_token!r}: the text or the chat template writes one and the "
                "tokenizer adds another; remove it from one of them"
            )
        if ids[:1] != [bos] and list(tokenizer("").input_ids[:1]) == [bos]:
            ids = [bos, *ids]
    if not ids:
        raise DataError(f"an empty prompt: {prompt!r}")
    return cut_prompt(ids, tokenizer, max_tokens)


def cut_prompt(ids: list[int], tokenizer: Any, max_tokens: int | None) -> list[int]:
    """A prompt without its beginning when it is longer than `max_tokens`; the beginning-of-sequence token stays."""
    if max_tokens is None or len(ids) <= max_tokens:
        return ids
    keep = ids[:1] if ids[0] == tokenizer.bos_token_id and max_tokens > 1 else []
    return keep + ids[len(ids) - max_tokens + len(keep) :]


def encode_response(tokenizer: Any, text: str, max_tokens: int | None, end_id: int, *, cut: Cut = "end") -> list[int]:
    """Token ids of a written answer, closed by `end_id`.

    One that is longer than `max_tokens` loses its end: with `cut="end"` its last token is then overwritten by `end_id`
    (segment paper, Appendix D), with `cut="drop"` it stays open.
    """
    return cut_response([*tokenizer(text, add_special_tokens=False).input_ids, end_id], max_tokens, end_id, cut=cut)


def cut_response(ids: list[int], max_tokens: int | None, end_id: int, *, cut: Cut = "end") -> list[int]:
    """A written answer without its end when it is longer than `max_tokens`; see `encode_response`."""
    if max_tokens is None or len(ids) <= max_tokens:
        return ids
    ids = ids[:max_tokens]
    if cut == "end":
        ids[-1] = end_id
    return ids


def encode_text(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of a text, without special tokens, and the characters `start:end` of it that each token covers.

    What the tokenizer says of its offsets is taken where each token has characters of its own. Where several share one
    (bytes), or a token has none (the mark before a first word), it says too much: then `offsets` finds them, unless
    the tokenizer has changed the text (to another Unicode form, say), which only it can tell.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, said = list(encoded.input_ids), [(start, end) for start, end in encoded.offset_mapping]
    ends = [0, *(end for _start, end in said)]
    simple = all(end == start < stop for end, (start, stop) in zip(ends, said, strict=False)) and ends[-1] == len(text)
    return ids, said if simple or decode(tokenizer, ids) != text else offsets(tokenizer, ids)


# -- ids to text -------------------------------------------------------------------------------------------------------


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of a response, without special tokens and without tidying of spaces."""
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Each token decoded alone, special tokens too."""
    return [tokenizer.decode([token]) for token in ids]


UNFINISHED = "\ufffd"
"""What a tokenizer puts out for bytes that are no whole character (yet)."""


def offsets(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Characters `start:end` of `decode(tokenizer, ids)` that each token covers.

    Tokens that hold parts of one character (an emoji in byte-level vocabularies) all cover it. A special token covers
    nothing. Together the tokens cover every character.
    """
    return _offsets_by_window(tokenizer, ids) or _offsets_by_prefix(tokenizer, ids)


def _offsets_by_window(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]] | None:
    """Decode a few tokens at a time; None when the pieces do not add up to the whole text."""
    spans: list[tuple[int, int]] = []
    before = start = 0  # ids[before:start] is context, ids[start:] is not yet placed
    placed = stable = 0  # characters of the text up to `start`, and up to the last whole character
    pieces: list[str] = []
    for index in range(len(ids)):
        context = decode(tokenizer, ids[before:start])
        piece = decode(tokenizer, ids[before : index + 1])
        if not piece.startswith(context):
            return None
        piece = piece[len(context) :]
        last, unfinished = index + 1 == len(ids), piece.endswith(UNFINISHED)
        whole = placed + len(piece if last else piece.rstrip(UNFINISHED))
        spans.append((stable, max(stable, whole) + (unfinished and not last)))
        stable = max(stable, whole)
        if last or not unfinished:
            pieces.append(piece)
            placed += len(piece)
            before, start = start, index + 1
    return spans if "".join(pieces) == decode(tokenizer, ids) else None


def _offsets_by_prefix(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Decode every prefix: slower, and right for tokenizers whose text depends on what came long before.

    (With byte fallback, one byte of an unfinished character makes every byte token before it unreadable.)
    """
    text = decode(tokenizer, ids)
    spans, stable = [], 0
    for index in range(len(ids)):
        prefix = decode(tokenizer, ids[: index + 1])
        whole = len(text) if index + 1 == len(ids) else _common_length(prefix.rstrip(UNFINISHED), text)
        started = max(stable, whole) + prefix.endswith(UNFINISHED)
        spans.append((stable, min(started, len(text))))
        stable = max(stable, whole)
    return spans


def _common_length(a: str, b: str) -> int:
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


# -- ids to tensors ----------------------------------------------------------------------------------------------------


def pad(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    eos_ids: Iterable[int],
    device: Any = None,
) -> Tokens:
    """Prompts [B,P] padded on the left, responses [B,T] on the right.

    `eos` marks a response's last token when it is one of `eos_ids`; padding with the same id is never marked.
    """
    ends = set(eos_ids)
    prompt_ids, prompt_mask = _padded(prompts, pad_id, left=True)
    response_ids, mask = _padded(responses, pad_id, left=False)
    eos = torch.zeros_like(mask)
    for row, response in enumerate(responses):
        if len(response) and response[-1] in ends:
            eos[row, len(response) - 1] = True
    tokens = Tokens(prompt_ids, prompt_mask, response_ids, mask, eos)
    return tokens if device is None else tokens.to(device)


def _padded(rows: Sequence[Sequence[int]], pad_id: int, *, left: bool) -> tuple[Tensor, Tensor]:
    width = max(1, *(len(row) for row in rows)) if rows else 1
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, place] = torch.tensor(row, dtype=torch.long)
        mask[index, place] = True
    return ids, mask


def trim(tokens: Tokens) -> Tokens:
    """Without the columns that are padding in every row (one column is always left)."""
    prompts = int(tokens.prompt_mask.sum(1).max().clamp_min(1)) if len(tokens.mask) else 1
    responses = int(tokens.mask.sum(1).max().clamp_min(1)) if len(tokens.mask) else 1
    return Tokens(
        tokens.prompt_ids[:, -prompts:],
        tokens.prompt_mask[:, -prompts:],
        tokens.response_ids[:, :responses],
        tokens.mask[:, :responses],
        tokens.eos[:, :responses],
    )


def select(tokens: Tokens, rows: Any) -> Tokens:
    """Some rows of `tokens` (of a `Rollout`: their ids and masks)."""
    return Tokens(
        tokens.prompt_ids[rows],
        tokens.prompt_mask[rows],
        tokens.response_ids[rows],
        tokens.mask[rows],
        tokens.eos[rows],
    )


def in_micro_batches(
    tokens: Tokens,
    compute: Callable[[Tokens], dict[str, Tensor]],
    micro_batch: int,
    device: Any = None,
    *,
    shared: bool = True,
) -> dict[str, Tensor]:
    """Run `compute` over micro-batches of rows, each trimmed, and put the [b,t] results back in order.

    Rows that go together have like lengths or, where the models of `compute` read `shared` prompts once, a prompt in
    common (`models.arrange`). Results are zero-padded to [B,T] and come back on the device of `tokens`.
    """
    home = tokens.mask.device
    prompts = [tuple(row) for row in tokens.prompt_ids.masked_fill(~tokens.prompt_mask, -1).tolist()]
    lengths, responses = tokens.prompt_mask.sum(1).tolist(), tokens.mask.sum(1).tolist()
    sizes = [min(micro_batch, len(prompts) - start) for start in range(0, len(prompts), micro_batch)]
    chosen = models.arrange(prompts, lengths, responses, sizes, shared=shared)
    order = torch.tensor(chosen, dtype=torch.long, device=home)
    whole: dict[str, Tensor] = {}
    for start in range(0, len(order), micro_batch):
        rows = order[start : start + micro_batch]
        part = trim(select(tokens, rows))
        for name, result in compute(part if device is None else part.to(device)).items():
            if name not in whole:
                whole[name] = torch.zeros(tokens.mask.shape, dtype=result.dtype, device=home)
            whole[name][rows, : result.shape[1]] = result.to(home)
    return whole


# -- sampling and scoring ----------------------------------------------------------------------------------------------


def check_exact(sampling: Sampling) -> None:
    """Refuse settings under which the drawn tokens' probabilities are not the model's (at the temperature)."""
    found = sampling.inexact()
    if found:
        raise ValueError(
            f"sampling with {', '.join(found)} draws from another distribution than the one whose log-probabilities the "
            "policy gradient uses; sample with temperature above 0 and without these settings (temperature is exact), or allow "
            "top_p and top_k with `truncated: true`"
        )


def sample(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    engine: Engine,
    *,
    seed: int,
    rows: Sequence[int] | None = None,
) -> list[list[int]]:
    """Responses to encoded prompts; row i uses the random stream (seed, rows[i])."""
    numbers = list(range(len(prompts))) if rows is None else list(rows)
    with torch.no_grad():
        return engine.generate(model, prompts, sampling, seed=seed, rows=numbers)


def collect(
    model: LanguageModel,
    reference: LanguageModel | None,
    prompts: Sequence[Sample],
    sampling: Sampling,
    engine: Engine,
    needs: frozenset[str],
    *,
    per_prompt: int = 1,
    seed: int = 0,
    first_row: int = 0,
    critic: LanguageModel | None = None,
    micro_batch: int = 8,
) -> Rollout:
    """Draw `per_prompt` responses to every prompt and fill the fields of `Rollout` that are in `needs`.

    1. encode the prompts and draw the responses: row b answers prompt b // per_prompt, from stream (seed, first_row + b)
    2. score them with the policy: `old_logp` at the sampling temperature
    3. one forward of the reference (None: the policy with its adapter off) for `ref_logp` at the sampling temperature,
       `ref_entropy` at temperature 1 (segments are cut by the reference's own distribution), and `ref_kl`
    4. `values` of the critic; decode; character offsets

    Needing `old_logp` under settings that make it inexact is refused (`check_exact`).
    """
    unknown = needs - NEEDS
    if unknown:
        raise ValueError(f"a rollout has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(NEEDS))}")
    if needs & {"old_logp", "ref_logp", "ref_kl"}:
        check_exact(sampling)
    if "values" in needs and critic is None:
        raise ValueError("values are needed, but there is no critic")
    if needs & {"ref_logp", "ref_entropy", "ref_kl"} and reference is None and not model.adapted:
        raise ValueError("the reference is needed; give one, or train with lora (then it is the base)")

    samples = [prompt for prompt in prompts for _ in range(per_prompt)]
    encoded = [encode_prompt(model.tokenizer, prompt.prompt, sampling.max_prompt_tokens) for prompt in prompts]
    rows = [ids for ids in encoded for _ in range(per_prompt)]
    streams = range(first_row, first_row + len(rows))
    responses = sample(model, rows, sampling, engine, seed=seed, rows=streams)
    tokens = pad(rows, responses, model.pad_id, model.eos_ids)
    scored: dict[str, Any] = score(
        model, reference, tokens, needs, temperature=sampling.temperature, critic=critic, micro_batch=micro_batch
    )
    return Rollout(
        **vars(tokens),
        group=torch.arange(len(prompts)).repeat_interleave(per_prompt),
        samples=samples,
        texts=[decode(model.tokenizer, ids) for ids in responses],
        offsets=[offsets(model.tokenizer, ids) for ids in responses] if "offsets" in needs else None,
        **scored,
    )


def score(
    model: LanguageModel,
    reference: LanguageModel | None,
    tokens: Tokens,
    needs: frozenset[str],
    *,
    temperature: float = 1.0,
    critic: LanguageModel | None = None,
    micro_batch: int = 8,
) -> dict[str, Tensor]:
    """The score fields of `Rollout` that are in `needs`, each [B,T] float32 on the CPU; see `collect`. No dropout."""

    other = model if reference is None else reference

    def compute(part: Tokens) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if needs & {"old_logp", "ref_kl"}:
            states = model.states(part)
        if "old_logp" in needs:
            found["old_logp"] = model.score_states(states, part, temperature=temperature).logp
        if needs & {"ref_logp", "ref_entropy", "ref_kl"}:
            others = other.states(part, adapter=reference is not None)
        if needs & {"ref_logp", "ref_entropy"}:
            scores = other.score_states(
                others,
                part,
                temperature=temperature or 1.0,  # greedy answers: only the entropy is asked for
                entropy="ref_entropy" in needs,
                entropy_temperature=1.0,
            )
            found |= {"ref_logp": scores.logp} if "ref_logp" in needs else {}
            found |= {"ref_entropy": scores.entropy} if scores.entropy is not None else {}
        if "ref_kl" in needs:
            kl = models.chunked_kl(states, model.logits, others, other.logits, temperature=temperature)
            found["ref_kl"] = models.unflatten(kl, part.mask)
        if critic is not None and "values" in needs:
            found["values"] = critic.values(part)
        return {name: value.float() for name, value in found.items()}

    with torch.no_grad(), models.evaluating(model, reference, critic):
        shared = all(one.shares_prompts(gradient=False) for one in (model, other, critic) if one is not None)
        return in_micro_batches(tokens, compute, micro_batch, model.device, shared=shared)
