"""First recipes in which what one stage trains is the reward, the relevance or the data of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fgrl.starting.columns import Kind
from fgrl.starting.measuring import rounded_up
from fgrl.starting.texts import Facts, Sizes, evaluation, flow, model, skipped, top, trained

CUTOFF = 1.75
"""Entropy in nats at which a segment starts, as in the paper's recipes."""
TEACHER = (
    "  teacher: {name: openai, model: gpt-4o-mini, budget_usd: 5}"
    "  # any OpenAI-compatible endpoint (base_url: ...); `fgrl plan` counts its calls"
)


def _reader(facts: Facts, **more: Any) -> str:
    """Return the reader of the rows that are trained on."""
    return flow({**facts.reader, "limit": skipped(facts), **more})


def _finetuned(facts: Facts, algorithm: str, lr: str) -> list[str]:
    sizes = facts.offline or facts.sizes
    steps = f", max_steps: {sizes.max_steps}" if sizes.max_steps else ""
    batch = f"batch_size: {sizes.batch}, micro_batch_size: {min(4, sizes.batch)}"
    return [
        f"    model: {model(facts, adapter=True)}",
        f"    algorithm: {algorithm}",
        f"    max_tokens: {sizes.max_tokens}  # prompt and answer together",
        f"    train: {{lr: {lr}, epochs: {sizes.epochs}, {batch}{steps}}}",
    ]


def _policy(facts: Facts, reward: str, algorithm: str, about: str) -> list[str]:
    sizes = facts.sizes
    step = max(sizes.batch // 2, 1)
    critic = ", critic_lr: 1e-3" if "ppo" in algorithm else ""
    return [
        f"  policy:  # {about}",
        "    name: rl",
        f"    prompts: {_reader(facts)}",
        f"    model: {model(facts, adapter=True)}",
        f"    reward: {reward}",
        f"    algorithm: {algorithm}  # a larger kl_coef stays closer to the model it starts from",
        f"    rollout: {{batch_size: {sizes.batch}, per_prompt: {sizes.per_prompt}, sampling: {_sampling(facts)}}}",
        f"    train: {{lr: 3e-4{critic}, iterations: {sizes.iterations}, batch_size: {step}, micro_batch_size: {min(16, step)}}}",
    ]


def _sampling(facts: Facts) -> str:
    return f"{{max_new_tokens: {facts.sizes.new_tokens}, max_prompt_tokens: {facts.sizes.max_prompt}}}"


def _drafts(facts: Facts, per_prompt: int) -> list[str]:
    return [
        "  drafts:  # answers of the model itself",
        "    name: sample",
        f"    prompts: {_reader(facts)}",
        f"    model: {model(facts, adapter=False)}",
        f"    per_prompt: {per_prompt}",
        f"    sampling: {_sampling(facts)}",
    ]


def _segment_ppo(facts: Facts) -> list[str]:
    sizes = facts.offline or facts.sizes
    segment = f"{{name: segment_rm, model: {trained(facts, 'reward_model')}"
    return [
        *top(facts, f"Segment PPO on the pairs of {facts.data}."),
        "stages:",
        "  reward_model:  # learns from the pairs to score every segment of an answer",
        "    name: finetune",
        f"    data: {flow(facts.reader)}",
        f"    holdout: {sizes.share}  # share of the rows, from the end, that is measured before and after the training",
        *_finetuned(
            facts,
            f"{{name: bradley_terry, segmenter: {{name: entropy, cutoff: {CUTOFF}}}}}  # a token above the cutoff starts a segment",
            "1e-4",
        ),
        "  calibrate:  # mean and spread of segment rewards, by their place in the answer",
        "    name: calibrate",
        f"    data: {_reader(facts)}",
        f"    model: {model(facts, adapter=False)}",
        f"    reward: {segment}}}",
        "    normalizer: location",
        f"    max_tokens: {sizes.max_tokens}",
        *_policy(
            facts,
            f'{segment}, normalizer: {{name: location, fitted: "${{out:calibrate}}"}}, spread: even}}',
            "{name: ppo, kl_coef: 0.1}",
            "the normalized reward of a segment is spread over its tokens",
        ),
        *evaluation(
            facts, "policy", ["token_reward", "length", "repetition", "kl"], facts.reader, skipped(facts),
            [f"    rewards: {{segment: {segment}}}}}"],
        ),
    ]  # fmt: skip


def _rtt(facts: Facts) -> list[str]:
    marker, judge, teacher = "mark_by_rules  # the criteria have checks: no model is asked", "", []
    if facts.judged:
        marker = '{name: mark_by_llm, client: "${vars.teacher}", prompt: mark_taxonomy.txt}'
        judge = ', judge: {name: llm, client: "${vars.teacher}", prompt: judge_criterion.txt}'
        teacher = [TEACHER]
    relevance = f"{{name: discriminator, model: {trained(facts, 'discriminator')}, prompt: relevance.txt}}"
    rubric = f"{{name: rubric{judge}}}" if judge else "rubric"
    return [
        *top(facts, f"Rubrics to tokens on the prompts of {facts.data}."),
        *teacher,
        "stages:",
        *_drafts(facts, 2),
        "  marks:  # the characters that the verdict on each criterion depends on",
        "    name: annotate",
        '    data: {name: samples, of: "${out:drafts}"}',
        f"    annotator: {marker}",
        "  discriminator:  # learns which tokens a criterion is about",
        "    name: finetune",
        '    data: {name: samples, of: "${out:marks}"}',
        "    holdout: 0.05",
        *_finetuned(facts, "{name: token_bce, prompt: relevance.txt, positive_weight: 4.0}", "1e-3"),
        *_policy(
            facts,
            f"{{name: rubric, response: csr{judge}, relevance: {relevance}}}  # csr: the share of kept criteria",
            "{name: rtt_grpo, min_std: 0.05, kl_coef: 0.1}",
            "the reward of a criterion goes to the tokens that it is about",
        ),
        *evaluation(facts, "policy", [rubric, "length", "repetition", "kl"], facts.reader, skipped(facts)),
    ]


def _critic(facts: Facts) -> list[str]:
    annotated, source, first = [], _reader(facts), []
    spans_alone = "" if facts.teacher else ", format: {text: null}"
    if facts.teacher:
        first = [TEACHER]
        source = '{name: samples, of: "${out:annotated}"}'
        annotated = [
            *_drafts(facts, 1),
            "  annotated:  # a strong model criticises them and quotes good and poor passages",
            "    name: annotate",
            '    data: {name: samples, of: "${out:drafts}"}',
            '    annotator: {name: dual_feedback, client: "${vars.teacher}", prompt: critique_answer.txt, max_tokens: 1200}',
        ]
    reward = (
        f"{{name: critic, client: {{name: local, model: {trained(facts, 'critic')}, max_tokens: {_critique_tokens(facts.sizes)}, "
        f"stop_at_json: true}}, prompt: critic_answer.txt{spans_alone}}}"
    )
    return [
        *top(facts, f"A critic as token rewards, on {facts.data}."),
        *first,
        "stages:",
        *annotated,
        "  critic:  # learns to write critiques that quote good and poor passages",
        "    name: finetune",
        f"    data: {{name: critiques, data: {source}, prompt: critic_answer.txt{spans_alone}}}",
        "    holdout: 0.1",
        *_finetuned(facts, "sft", "5e-4"),
        *_policy(
            facts, reward, "{name: ppo, kl_coef: 0.1}", "a token of a good passage earns 1, one of a poor passage -1"
        ),
        *evaluation(
            facts, "policy", ["token_reward", "length", "repetition", "kl"], facts.reader, skipped(facts),
            ['    rewards: {critic: "${stages.policy.reward}"}'],
        ),
    ]  # fmt: skip


def _critique_tokens(sizes: Sizes) -> int:
    return 2 * sizes.new_tokens + 64


def _chains(facts: Facts) -> list[str]:
    return [
        *top(facts, f"Improvement chains from the marked answers of {facts.data}."),
        "stages:",
        "  chains:  # each step of a chain addresses one disliked passage",
        "    name: annotate",
        f"    data: {_reader(facts)}",
        "    annotator:",
        "      name: improvement_chain",
        "      rewriter: {name: delete, unit: sentence}  # a rule; a model that rewrites: docs/how-to/chains.md",
        "      limits: {max_change: 0.9}  # of a short answer one sentence is much",
        "    max_missing: 0.9  # answers of which nothing would be left have no chain",
        "  pairs:  # every step is preferred to the one before it",
        "    name: pair",
        '    data: {name: samples, of: "${out:chains}"}',
        "    builder: {name: chain, kind: stepwise}",
        "  sft:  # first learns to write the ends of the chains",
        "    name: finetune",
        '    data: {name: samples, of: "${out:chains}"}',
        *_finetuned(facts, "sft", "2e-4"),
        "  dpo:  # then prefers every step to the one before it",
        "    name: finetune",
        '    data: {name: pairs, of: "${out:pairs}"}',
        *[
            line.replace('base: "${vars.base}"', 'base: "${out:sft}"')
            for line in _finetuned(facts, "{name: dpo, beta: 0.1}", "5e-5")
        ],
        *evaluation(facts, "dpo", ["length", "repetition", "kl"], facts.reader, skipped(facts)),
    ]


BODIES: dict[str, Callable[[Facts], list[str]]] = {
    "segment_ppo": _segment_ppo, "rtt": _rtt, "critic": _critic, "chains": _chains,
}  # fmt: skip


def prompts(facts: Facts) -> list[str]:
    """Return the prompt files of fgrl that the recipe names; they are copied beside it."""
    names = {"rtt": ["relevance.txt"], "critic": ["critic_answer.txt"]}.get(facts.kind, [])
    judges = ["mark_taxonomy.txt", "judge_criterion.txt"] if facts.judged else []
    return [*names, *judges, *(["critique_answer.txt"] if facts.teacher else [])]


def seen_tokens(kind: Kind, sizes: Sizes) -> int:
    """Return the tokens of an example of the discriminator (a criterion and an answer), or of the critic (a prompt, an
    answer and a critique).
    """
    if kind == "rtt":
        return rounded_up(sizes.new_tokens + 128)
    return rounded_up(sizes.max_tokens + 64 + _critique_tokens(sizes))
