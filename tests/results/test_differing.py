"""What recipes differ in, told shortly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgrl.runs.results.differing import differing


def policy(**fields: Any) -> dict[str, Any]:
    algorithm = {"name": "grpo", "version": 1, "clip": 0.2, "beta": 0.0}
    return {"policy": {"name": "rl", "version": 3, "lr": 1e-5, "algorithm": algorithm, "metrics": ["a", "b"], **fields}}


def told(*built: dict[str, Any], written: list[dict[str, Any]] | None = None) -> list[tuple[str, ...]]:
    return [(one.key, *one.values) for one in differing(built, written)]


def test_the_same_settings_differ_in_nothing() -> None:
    assert told(policy(), policy(), policy()) == []


def test_single_settings_are_named_with_the_values_of_all() -> None:
    other = policy(lr=0.1 + 0.2, algorithm={"name": "grpo", "version": 2, "clip": None, "beta": 0.0})
    assert told(policy(), other, policy()) == [
        ("policy.lr", "1e-05", "0.30000000000000004", "1e-05"),
        ("policy.algorithm.clip", "0.2", "null", "0.2"),
    ]  # a version comes with the code, not with the recipe


def test_another_component_is_shown_as_it_was_written() -> None:
    other = {
        "name": "rtt_grpo",
        "version": 1,
        "clip": 0.2,
        "token_weight": 0.5,
        "response_weight": 1.0,
        "partition": "intra_sample",
    }
    written = [
        {"policy": {"name": "rl", "algorithm": "grpo"}},
        {"policy": {"name": "rl", "algorithm": {"name": "rtt_grpo", "token_weight": 0.5}}},
    ]
    assert told(policy(), policy(algorithm=other), written=written) == [
        ("policy.algorithm", "grpo", "{name: rtt_grpo, token_weight: 0.5}")
    ]
    assert told(policy(), policy(algorithm=other)) == [("policy.algorithm", "grpo", "rtt_grpo")]


def test_lists_of_one_length_are_compared_item_by_item() -> None:
    assert told(policy(), policy(metrics=["a", "c"])) == [("policy.metrics.1", "b", "c")]
    longer = policy(metrics=[{"name": "rule", "version": 1, "x": 1}, True, 2])
    assert told(policy(), longer) == [("policy.metrics", "[a, b]", "[rule, true, 2]")]


def test_stages_and_settings_that_only_some_have() -> None:
    more = {"labels": {"name": "annotate", "limit": 3}, **policy(columns={"id": "x"})}
    assert told(policy(columns={}), more) == [("policy.columns.id", "–", "x"), ("labels", "–", "annotate")]


def test_another_kind_of_stage_keeps_what_both_have() -> None:
    other = {"policy": {"name": "finetune", "version": 1, "lr": 1.0, "epochs": 2}}
    assert told(policy(), other) == [("policy", "rl", "finetune"), ("policy.lr", "1e-05", "1")]


def test_files_here_are_named_from_here() -> None:
    here = {"policy": {"name": "rl", "path": str(Path.cwd() / "a" / "x.jsonl")}}
    assert told(here, {"policy": {"name": "rl", "path": "/elsewhere/x"}}) == [
        ("policy.path", "a/x.jsonl", "/elsewhere/x")
    ]
