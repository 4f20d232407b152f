"""The sizes and the text of a first recipe."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.starting.columns import Kind
from fgrl.starting.measuring import LONGEST_PROMPT, LONGEST_ROW, Measured, rounded_up

WIDTH = 120
ON_A_CPU = 60_000
"""Tokens that a training on fixed data may read without a GPU: some minutes for a model of 135 million parameters."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of a recipe."""

    held_out: int
    share: float
    """`held_out` / rows."""
    evaluated: int
    """Held-out prompts that are answered."""
    max_prompt: int
    max_tokens: int
    new_tokens: int
    batch: int
    """Rows (pairs) of an optimizer step; responses of an iteration."""
    epochs: int = 1
    max_steps: int | None = None
    iterations: int = 0
    per_prompt: int = 1


@dataclass(frozen=True)
class Facts:
    """Values from which the text is made."""

    kind: Kind
    data: str
    """The file's name."""
    reader: Mapping[str, Any]
    reference: str | None
    """The column whose texts are the right answers."""
    model: Mapping[str, str]
    reward: str | None
    sizes: Sizes
    measured: Measured
    assumptions: Sequence[str]
    by_token: bool = False
    """True if the reward function scores tokens or spans."""
    offline: Sizes | None = None
    """Sizes of the training on fixed data, where `sizes` are those of a training on rollouts."""
    judged: bool = False
    """True if a criterion has no check, so that a language model decides."""
    teacher: bool = False
    """True if a language model has to mark answers before a critic can learn to."""


def choose(
    kind: Kind, measured: Measured, gpu: bool, max_prompt_tokens: int | None = None, max_tokens: int | None = None
) -> Sizes:
    """Sizes for so many rows of such lengths. max_prompt_tokens, max_tokens: limits that were asked for."""
    share = 0.2 if measured.count < 1_000 else 0.1 if measured.count < 10_000 else 0.02
    held_out = round(share * measured.count)
    trained = measured.count - held_out
    positions = measured.positions or 10**9
    prompts, answers = measured.prompts, measured.answers
    max_prompt = rounded_up(prompts.longest if prompts.longest <= LONGEST_PROMPT else min(prompts.most, LONGEST_PROMPT))
    max_prompt = max_prompt_tokens or max_prompt
    evaluated = min(held_out, 200 if gpu else 32)
    if answers is None:
        new_tokens = 256 if gpu else 48
        max_prompt = max(1, min(max_prompt, positions - new_tokens))
        batch, per_prompt = _of_rollouts(kind, trained, gpu)
        return Sizes(
            held_out, share, evaluated, max_prompt, max_prompt + new_tokens, new_tokens, batch,
            iterations=200 if gpu else 20, per_prompt=per_prompt,
        )  # fmt: skip
    chosen = min(max(rounded_up(prompts.longest + answers.longest), max_prompt + 16), LONGEST_ROW, positions)
    max_tokens = max_tokens or chosen
    max_prompt = min(max_prompt, max_tokens - 16)
    new_tokens = min(rounded_up(answers.most), 512 if gpu else 64, positions - max_prompt)
    batch = next(size for size in (32 if gpu else 16, 16, 8, 4, 2) if size * 10 <= trained or size == 2)
    epochs = 3 if trained <= 2_000 else 1
    each = (prompts.median + answers.median) * (1 if kind == "sft" else 2)
    most = max(10, ON_A_CPU // (batch * each))
    steps = epochs * -(-trained // batch)
    return Sizes(
        held_out, share, evaluated, max_prompt, max_tokens, new_tokens, batch, epochs,
        max_steps=most if not gpu and steps > most else None,
    )  # fmt: skip


def _of_rollouts(kind: Kind, trained: int, gpu: bool) -> tuple[int, int]:
    """Responses of an iteration, and responses to each prompt; there are enough prompts for one iteration."""
    responses = 128 if gpu else 32
    wanted = 8 if kind in ("grpo", "rtt") else 1
    per_prompt = next(count for count in (1, 2, 4, 8, 16, 32) if count >= wanted and responses // count <= trained)
    return responses, per_prompt


def recipe(facts: Facts, body: Callable[[Facts], list[str]]) -> str:
    """Return the recipe as YAML with comments."""
    head = [
        f"# A first recipe for {facts.data}. Check it with `fgrl validate`, look at the rows with `fgrl inspect`, run it with `fgrl run`.",
        "# What was detected in the data, and what is assumed:",
    ]
    for line in facts.assumptions:
        head += textwrap.wrap(line, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False)
    return "\n".join([*head, *body(facts)]) + "\n"


ADAPTER = "lora: {r: 16, alpha: 32}"


def top(facts: Facts, about: str) -> list[str]:
    """Return the lines before the stages."""
    lines = [
        f"about: {json.dumps(_literal(about))}",
        "seed: 0",
        "vars:",
        f"  base: {flow(facts.model['base'])}  # the model to start from",
    ]
    if "chat_template" in facts.model:
        lines.append(f"  chat_template: {flow(facts.model['chat_template'])}")
    return lines


def model(facts: Facts, *, adapter: bool) -> str:
    """Return the model to start from, with an adapter to train or without."""
    template = ', chat_template: "${vars.chat_template}"' if "chat_template" in facts.model else ""
    return f'{{base: "${{vars.base}}", dtype: auto{template}{", " + ADAPTER if adapter else ""}}}'


def trained(facts: Facts, stage: str) -> str:
    """Return the model that a stage trained."""
    template = ', chat_template: "${vars.chat_template}"' if "chat_template" in facts.model else ""
    return f'{{base: "${{out:{stage}}}"{template}}}' if template else f'"${{out:{stage}}}"'


def _offline(facts: Facts, stage: str, algorithm: str, lr: str) -> list[str]:
    sizes, reader = facts.sizes, _with_reference(facts)
    steps = [] if sizes.max_steps is None else [
        f"      max_steps: {sizes.max_steps}  # a few minutes without a GPU; delete this line to train on all rows"
    ]  # fmt: skip
    return [
        "stages:",
        f"  {stage}:",
        "    name: finetune",
        f"    data: {flow(reader)}",
        f"    holdout: {sizes.share}  # share of the rows, from the end, that is measured before and after the training",
        *(
            ["    overlap: drop  # leave out held-out rows whose prompt is also trained on"]
            if facts.measured.repeated
            else []
        ),
        f"    model: {model(facts, adapter=True)}",
        f"    algorithm: {algorithm}",
        f"    max_prompt_tokens: {sizes.max_prompt}",
        f"    max_tokens: {sizes.max_tokens}  # prompt and answer together",
        "    train:",
        f"      lr: {lr}",
        f"      epochs: {sizes.epochs}",
        f"      batch_size: {sizes.batch}",
        f"      micro_batch_size: {min(4, sizes.batch)}  # raise it if memory allows; results stay the same",
        *steps,
    ]


def _with_reference(facts: Facts) -> dict[str, Any]:
    """Return the reader; where answers are texts, they are the references of evaluations, too."""
    columns = dict(facts.reader["columns"])
    if facts.reference is not None:
        columns["reference"] = facts.reference
    return {**facts.reader, "columns": columns}


def evaluation(
    facts: Facts, stage: str, metrics: Sequence[str], reader: Mapping[str, Any], skip: int, more: Sequence[str] = ()
) -> list[str]:
    """Return a stage that compares the trained model with the one it started from. more: lines about the stage."""
    sizes = facts.sizes
    held_out = {**reader, "skip": skip, "limit": sizes.evaluated}
    return [
        "  evaluate:  # answers of both models to held-out prompts, with intervals",
        "    name: evaluate",
        f"    prompts: {flow(held_out)}",
        f"    models: {{start: {model(facts, adapter=False)}, trained: {trained(facts, stage)}}}",
        "    baseline: start",
        *(["    overlap: drop  # leave out prompts that are also trained on"] if facts.measured.repeated else []),
        *more,
        f"    metrics: [{', '.join(metrics)}]",
        f"    sampling: {{max_new_tokens: {sizes.new_tokens}, max_prompt_tokens: {sizes.max_prompt}, temperature: 0.7}}",
    ]


def skipped(facts: Facts) -> int:
    """Rows before those that `holdout` holds out. With rows left out it is more than were trained on."""
    return facts.measured.count + facts.measured.bad - facts.sizes.held_out


def _sft(facts: Facts) -> list[str]:
    reader = _with_reference(facts)
    metrics = ["length", "repetition", "kl"]
    if "reference" in reader["columns"]:
        answers = facts.measured.answers
        metrics.insert(0, "exact_match" if answers is not None and answers.most <= 8 else "rouge")
    return [
        *top(facts, f"Supervised fine-tuning on {facts.data}."),
        *_offline(facts, "sft", "sft", "2e-4"),
        *evaluation(facts, "sft", metrics, reader, skipped(facts)),
    ]


def _dpo(facts: Facts) -> list[str]:
    return [
        *top(facts, f"Direct preference optimization on {facts.data}."),
        *_offline(
            facts, "dpo", "{name: dpo, beta: 0.1}  # a larger beta stays closer to the model it starts from", "5e-5"
        ),
        *evaluation(facts, "dpo", ["length", "repetition", "kl"], facts.reader, skipped(facts)),
    ]


def _reward_model(facts: Facts) -> list[str]:
    return [
        *top(facts, f"A reward model (Bradley-Terry) on {facts.data}."),
        *_offline(facts, "reward_model", "{name: bradley_terry, segmenter: bandit}  # one score per answer; sentence: one per sentence", "1e-4"),
        "    evaluate: {every: 50}  # loss and accuracy on the held-out pairs while it trains",
    ]  # fmt: skip


def _online(facts: Facts) -> list[str]:
    sizes, kind = facts.sizes, facts.kind
    trained = facts.measured.count + facts.measured.bad - sizes.held_out
    algorithm = {"grpo": "{name: grpo, kl_coef: 0.02}", "ppo": "{name: ppo, kl_coef: 0.1}"}[kind]
    scalar = []
    if facts.by_token:
        change = f"reward: {{name: function, path: {flow(facts.reward)}, placement: last}}"
        if kind == "grpo":
            change, algorithm = f"algorithm: {algorithm}", "{name: rtt_grpo, kl_coef: 0.02, partition: none}"
        scalar = [
            "rows:",
            "  scalar:",
            '    about: "One number per answer, the total of its rewards: what do their places add?"',
            f"    stages: {{policy: {{{change}}}}}",
        ]
    critic = ["      critic_lr: 1e-3"] if kind == "ppo" else []
    step = sizes.batch if kind == "grpo" else sizes.batch // 2
    return [
        *top(facts, f"{kind.upper()} on the prompts of {facts.data}."),
        f"  reward: {{name: function, path: {flow(facts.reward)}}}",
        "stages:",
        "  policy:",
        "    name: rl",
        f"    prompts: {flow({**facts.reader, 'limit': trained})}",
        f"    model: {model(facts, adapter=True)}",
        '    reward: "${vars.reward}"',
        f"    algorithm: {algorithm}  # a larger kl_coef stays closer to the model it starts from",
        "    rollout:",
        f"      batch_size: {sizes.batch}  # responses of an iteration",
        f"      per_prompt: {sizes.per_prompt}",
        f"      sampling: {{max_new_tokens: {sizes.new_tokens}, max_prompt_tokens: {sizes.max_prompt}}}",
        "    train:",
        "      lr: 3e-4",
        *critic,
        f"      iterations: {sizes.iterations}",
        f"      batch_size: {step}",
        f"      micro_batch_size: {min(16, step)}  # results do not depend on it, memory does",
        *evaluation(
            facts, "policy", ["token_reward", "length", "repetition", "kl"], facts.reader, trained,
            ['    rewards: {reward: "${vars.reward}"}  # measured by token_reward'],
        ),
        *scalar,
    ]  # fmt: skip


BODIES: dict[str, Callable[[Facts], list[str]]] = {
    "sft": _sft, "dpo": _dpo, "reward_model": _reward_model, "ppo": _online, "grpo": _online,
}  # fmt: skip
PLAIN = re.compile(r"[A-Za-z_./~][\w./~+-]*")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "nan", "inf", "y", "n", "~"}


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        path = re.fullmatch(r"[\w./-]+\.py:\w+", value)
        plain = (PLAIN.fullmatch(value) and value.lower() not in WORDS) or path
        return value if plain else json.dumps(_literal(value), ensure_ascii=False)
    return json.dumps(value)


def _literal(text: str) -> str:
    """Return a text that a recipe takes as it is: `${` would ask for another value."""
    return text.replace("${", "\\${")


def stub(columns: Sequence[str]) -> str:
    """Return a file with a placeholder reward. columns: of the data, which the function may take as arguments."""
    names = ", ".join(name for name in columns if name not in ("prompt", "messages"))
    takes = f"Columns of your data come as keyword arguments, one value per completion: {names}." if names else (
        "Columns of your data would come as keyword arguments, one value per completion."
    )  # fmt: skip
    return f'''"""The reward of the training: replace the function by your own."""


def score(completions, **columns):
    """A number for each completion, higher is better; None leaves a completion out.

    This placeholder likes completions of at most 20 words that end with a full stop.
    {takes}
    """
    return [_score(completion) for completion in completions]


def _score(completion):
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    words = len(text.split())
    return float(text.rstrip().endswith(".")) + min(1.0, 20 / max(1, words))
'''
