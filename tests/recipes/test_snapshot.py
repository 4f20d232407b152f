"""Every recipe resolves to the settings that it had when the snapshot was taken, and finds the stages finished since.

The snapshot has the recipes as they were written then, each in a file of its own; most are rows of a file now. Where a
setting was renamed on purpose, `RENAMED` says so, where it was wrong, `CORRECTED`, and the stage's key is a new one.
"""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from fgrl import registry
from fgrl.pipeline import plan
from fgrl.recipe import Recipe, load

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "snapshot" / "recipes.json.gz").read_bytes())
)
RESIZED = {"recipes/quickstart.yaml"}
"""Recipes that were made cheaper since; what they share with others is in tests of their own."""
RECIPES: dict[str, dict[str, Any]] = {name: then for name, then in SNAPSHOT["recipes"].items() if name not in RESIZED}

RENAMED: dict[str, dict[str, str | None]] = {
    "rtt_grpo": {
        "alpha": "response_weight", "beta": "token_weight", "least_spread": "min_std", "released_order": None,
    },
    "discriminator": {"end": "include_eos", "truncated": None},
    "oracle": {"end": "include_eos"},
    "grade_relevance": {"data": "left"},
}  # fmt: skip
"""By component: old field -> new one, or None for a field that is gone (it had its default in every recipe)."""

REPLACED = {
    "grade_relevance": {
        "name": "grade", "right": {}, "lines": [], "labels": None, "units": None, "token_policy": "words", "conflict": "poor",
        "overlap": 0.9, "judge": None,
    },
}  # fmt: skip
"""By component: what it is called now, and the fields that it has besides."""

AMONG_TEXT = "JSON is read among other text, and quotes prefer whole words"
RECOMPUTED: dict[str, str | tuple[str, ...]] = {
    "dpo": "the reference reads the batches of the policy, so that both round alike",
    "location": "locations are rounded as the authors' release prints them",
    "llm": "a judge's (YES), [NO], YES! and YES: are read as verdicts",
    "preference": ("quotation marks around a verdict are read as those around YES and NO", AMONG_TEXT),
    "mark_by_llm": AMONG_TEXT,
    "constraint_omission": AMONG_TEXT,
    "win_rate": "quotation marks around a verdict are read as those around YES and NO",
    "muldimif": "its rules on capital letters and on the last mark are its own",
    "hir": "MulDimIF's rules on capital letters and on the last mark are its own",
    "ifbench": "the sentence of format:title_case names what the rule asks for",
    "token_auc": (
        "what breaks one of several rules nowhere in particular no longer counts as keeping them all",
        "a token that a violation only touches does not violate, unless no token lies in the violation",
    ),
    "token_bce": "a token that a mark only touches is not marked, unless no token lies in the mark",
    "grade_relevance": "a token that a mark only touches is not marked, unless no token lies in the mark",
}
"""By component: why the same settings give other results now, each time that its version was raised; stages that use it are done
anew."""

ABSENT = object()


@dataclass(frozen=True)
class Correction:
    """A setting that was wrong when the snapshot was taken."""

    recipes: str
    """Which recipes of the snapshot, as a pattern; of these, those that have the value `before`."""
    setting: str
    """stage.path"""
    before: Any
    after: Any
    why: str


SEGMENT_LENGTH = {
    "name": "segment_length", "version": 1, "title": "", "resamples": 2000, "level": 0.95, "seed": 0, "rewards": None,
}  # fmt: skip
JUDGES = ("policy.reward.judge", "ifeval.rewards.rubric.judge",
          *(f"{stage}.metrics.0.judge" for stage in ("ifeval", "ifbench", "muldimif")))  # fmt: skip
RTT, SEGMENT, RLA = "recipes/rtt_*", "recipes/segment_ppo_*", "recipes/rla_*"
CORRECTED = [
    Correction(RTT, "policy.train.batch_size", 64, 256, "4 x 2 rows on each of the release's 32 devices"),
    Correction(RTT, "policy.train.warmup", 0.0, 0.02, "20 of the 1,000 steps, as in the release"),
    Correction(RTT, "policy.train.betas", [0.9, 0.95], [0.9, 0.999], "ROLL and LLaMA-Factory take those of HF trainers"),
    Correction(RTT, "marks.annotator.temperature", 0.0, None, "reasoning models accept no other than their own"),
    Correction(RTT, "marks.annotator.client.temperature", 0.0, None, "the same"),
    Correction(RTT, "modified.annotator.client.temperature", 0.0, None, "the same"),
    Correction(RTT, "general.task_folder", None, "<root>/tasks/rubrics_to_tokens", "Table 7's prompts"),
    Correction(RTT, "general.tasks.0.task", "hendrycks_math500", "rtt_math500", "the harness's never reads a box"),
    Correction(RTT, "general.tasks.1.task", "gpqa_main_cot_zeroshot", "rtt_gpqa", "Table 7's prompt and its answers"),
    Correction(RTT, "general.tasks.2.task", "mmlu_pro", "rtt_mmlu_pro", "Table 7's prompt and its answers"),
    Correction(RTT, "general.tasks.2.num_fewshot", 0, None, "the task fixes it"),
    Correction("recipes/*", "discriminator.algorithm.token_policy", "overlap", "words", "one default wherever spans become tokens"),
    Correction(RLA, "reward_model.evaluate", ABSENT,
               {"every": 100, "sets": {}, "keep": "none",
                "best": {"number": "holdout/bradley_terry.accuracy", "goal": "max", "patience": 2}},
               "the paper keeps the reward model with the best accuracy on held-out pairs"),
    Correction(RLA, "preferences.annotator.disagreement", "drop", "average", "as RLAIF does, and as docs/contributing/decisions/clients.md says"),
    Correction(RLA, "hate_speech.prompts.balanced", ABSENT, 478, "Table 3's numbers are multiples of 1/478"),
    Correction(RLA, "social_bias.prompts.undecided", "drop", "no", "Table 3's numbers fit all 4,691 test posts"),
    Correction(SEGMENT, "evaluate.metrics.4", ABSENT, SEGMENT_LENGTH, "Figure 3 plots the segments' length"),
    Correction(SEGMENT, "mt_bench.temperatures", ABSENT, {"writing": 0.7, "roleplay": 0.7, "stem": 0.1, "humanities": 0.1},
               "MT-Bench has a temperature for each category"),
    Correction(RTT, "strong.annotator.client.model", "gemini-3-pro-preview", "gemini-3.1-pro-preview", "it has ended"),
    Correction(RTT, "advanced_if.metrics.0.judge.client.model", "o3-mini", "gpt-5.6-sol", "it has ended"),
    *(Correction(RTT, f"{judge}.client.model", "deepseek-chat", "deepseek-v4-flash", "it has ended") for judge in JUDGES),
    *(Correction(RTT, f"{judge}.max_tokens", 16, 2048, "deepseek-v4-flash thinks before it answers") for judge in JUDGES),
]  # fmt: skip
ADDED = {
    "leaderboard": "Table 7 of the segment paper, and Table 3's GSM8K",
    "mbpp": "Figure 5 of the segment paper",
    "mbpp_plus": "Figure 5 of the segment paper",
    "averages": "last columns of RLA's Tables 2 and 3 and the segment paper's Table 7, Figure 3 of Rubrics to Tokens",
}
"""Stages that the recipes lacked."""


def corrected(old: str, name: str, value: Any) -> Any:
    """Settings of a stage with what `CORRECTED` says of it."""
    value = copy.deepcopy(value)
    for correction in CORRECTED:
        stage, *path, last = correction.setting.split(".")
        if stage != name or not fnmatch(old, correction.recipes):
            continue
        inside = value
        for part in path:
            inside = (
                inside[int(part) if isinstance(inside, list) else part]
                if part in inside or isinstance(inside, list)
                else {}
            )
        if isinstance(inside, list) and correction.before is ABSENT:
            if len(inside) == int(last) and value["rewards"]:
                inside.append(correction.after)
        elif inside and inside.get(last, ABSENT) == correction.before:
            inside[last] = correction.after
    return value


def address(old: str) -> str:
    """Where a recipe of the snapshot is today."""
    folder, name = str(Path(old).parent), Path(old).stem
    if (ROOT / old).exists():
        return old
    for base in sorted(BASES[folder], key=len, reverse=True):
        if name.startswith(f"{base}_"):
            row = name.removeprefix(f"{base}_").replace("beta_", "token_weight_")
            return f"{folder}/{FILES.get(base, base)}.yaml::{row}"
    raise KeyError(old)


FILES = {"rla_llama3": "rla_llama3"}
BASES = {
    "recipes": ["segment_ppo_phi3", "segment_ppo_llama3", "segment_ppo_phi31_sft", "rla_llama3", "rtt_qwen3", "rtt_qwen25",
                "rtt_llama32"],
    "recipes/small": ["segment_ppo", "segment_ppo_llama3", "segment_ppo_phi31_sft", "rla", "rtt", "rtt_qwen25", "rtt_llama32"],
}  # fmt: skip


def loaded(old: str) -> Recipe:
    """Today's recipe in bfloat16, as the snapshot has it; the one checkpoint that is not public is stood in for."""
    waits = "phi31" in old and "small" not in old
    return load(ROOT / address(old), ["dtype=bfloat16", *(["vars.sft=standing-in"] if waits else [])])


def settings(stage: Any) -> Any:
    """A stage's settings, with files by their place in the project; without fields that were added since then and have the
    value of their `KeyedUnless`, and without `Settings.corrections`."""

    def relative(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: relative(item) for key, item in value.items() if key != "corrections"}
        if isinstance(value, list):
            return [relative(item) for item in value]
        return value.replace(str(ROOT), "<root>") if isinstance(value, str) else value

    return relative(registry.dump(stage, for_key=True))


def renamed(value: Any) -> Any:
    """Old settings under today's names, with today's versions."""
    if isinstance(value, list):
        return [renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    changes = RENAMED.get(str(value.get("name")), {})
    names = {key: changes.get(key, key) for key in value}
    reasons = RECOMPUTED.get(str(value.get("name")), ())
    raised = 1 if isinstance(reasons, str) else len(reasons)
    version = {"version": value["version"] + raised} if raised else {}
    replaced = REPLACED.get(str(value.get("name")), {})
    return {name: renamed(value[key]) for key, name in names.items() if name is not None} | version | replaced


def test_the_snapshot_has_every_recipe_of_its_day() -> None:
    assert len(RECIPES) == 124
    assert len({address(old) for old in RECIPES}) == 124


@pytest.mark.parametrize("old", RECIPES)
def test_a_recipe_has_the_stages_and_settings_of_the_snapshot(old: str) -> None:
    then, today = RECIPES[old], loaded(old)
    graph = {name: sorted(needs) for name, needs in today.graph().items() if name not in ADDED}
    assert {"seed": today.seed, "graph": graph} == {"seed": then["seed"], "graph": then["graph"]}
    for name in graph:
        before = SNAPSHOT["settings"][then["stages"][name]]
        assert settings(today.stages[name]) == corrected(old, name, renamed(before)), f"{address(old)}: stages.{name}"


@pytest.mark.parametrize("correction", CORRECTED, ids=lambda correction: correction.setting)
def test_a_correction_still_corrects_something(correction: Correction) -> None:
    stage = correction.setting.partition(".")[0]
    befores = [
        (old, SNAPSHOT["settings"][then["stages"][stage]]) for old, then in RECIPES.items() if stage in then["stages"]
    ]
    assert correction.why
    assert any(corrected(old, stage, before) != before for old, before in befores)


def is_recomputed(value: Any) -> bool:
    """Is one of these components, or of those inside them, in `RECOMPUTED`?"""
    if isinstance(value, dict):
        return str(value.get("name")) in RECOMPUTED or any(map(is_recomputed, value.values()))
    return isinstance(value, list) and any(map(is_recomputed, value))


def has_corrections(value: Any) -> bool:
    """Have these settings, or those inside them, `Settings.corrections`?"""
    if isinstance(value, dict):
        return "corrections" in value or any(map(has_corrections, value.values()))
    return isinstance(value, list) and any(map(has_corrections, value))


def has_a_new_key(old: str, name: str, today: Recipe) -> bool:
    """Does the stage, or one that it builds on, have a setting with another name or value today, or give other results?"""
    before = SNAPSHOT["settings"][RECIPES[old]["stages"][name]]
    changed = corrected(old, name, renamed(before)) != before
    other_results = is_recomputed(before) or has_corrections(registry.dump(today.stages[name], for_key=True))
    return changed or other_results or any(has_a_new_key(old, other, today) for other in RECIPES[old]["graph"][name])


@pytest.mark.smollm2
@pytest.mark.parametrize("old", RECIPES)
def test_a_stage_that_was_finished_then_is_found_today(old: str, tmp_path: Path) -> None:
    today = loaded(old)
    keys = {stage.name: stage.key for stage in plan(today, tmp_path).stages}
    kept = {name: key for name, key in RECIPES[old]["keys"].items() if not has_a_new_key(old, name, today)}
    assert {name: keys[name] for name in kept} == kept
