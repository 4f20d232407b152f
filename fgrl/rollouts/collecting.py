"""From prompts to a rollout: encode, sample, score, decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.rollouts.ids_to_text import decode, offsets
from fgrl.rollouts.padding import pad
from fgrl.rollouts.sampling import check_exact, sample
from fgrl.rollouts.scoring import score
from fgrl.rollouts.text_to_ids import encode_prompt
from fgrl.specs import Sampling
from fgrl.types import Rollout, Sample

if TYPE_CHECKING:
    import torch

    from fgrl.kinds import Engine
    from fgrl.models import LanguageModel
else:
    torch = lazy.load("torch")

NEEDS = frozenset({"old_logp", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "text"})
"""What `collect` can be asked for."""


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
    micro_batch_size: int = 8,
) -> Rollout:
    """Draw `per_prompt` responses to every prompt and fill the fields of `Rollout` that are in `needs`.

    Raises ValueError for a field that cannot be computed, and for settings under which `old_logp` would be inexact
    (`check_exact`). `reference` None means the policy with its adapter switched off.
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

    # 1. prompts as token ids
    encoded = [encode_prompt(model.tokenizer, prompt.prompt, sampling.max_prompt_tokens) for prompt in prompts]
    rows = [ids for ids in encoded for _ in range(per_prompt)]
    # 2. responses: row b answers prompt b // per_prompt and is drawn from the random stream (seed, first_row + b)
    streams = range(first_row, first_row + len(rows))
    responses = sample(model, rows, sampling, engine, seed=seed, rows=streams)
    tokens = pad(rows, responses, model.pad_id, model.eos_ids)
    # 3. log-probabilities, entropies, values
    scored: dict[str, Any] = score(
        model,
        reference,
        tokens,
        needs,
        temperature=sampling.temperature,
        critic=critic,
        micro_batch_size=micro_batch_size,
    )
    # 4. text and character offsets of the drawn tokens
    return Rollout(
        **vars(tokens),
        group=torch.arange(len(prompts)).repeat_interleave(per_prompt),
        samples=[prompt for prompt in prompts for _ in range(per_prompt)],
        texts=[decode(model.tokenizer, ids) for ids in responses],
        offsets=[offsets(model.tokenizer, ids) for ids in responses] if "offsets" in needs else None,
        **scored,
    )
