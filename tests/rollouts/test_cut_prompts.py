"""Prompts that are longer than their limit are counted, with an example."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_recipe
from conftest import train_tokenizer
from tiny_recipe import a_run, alone, log

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.rollouts.rows import TokenTable
from fgrl.training.alarms import Alarms, Watch
from fgrl.types import Sample


def test_the_longest_prompt_is_the_example() -> None:
    tokenizer = train_tokenizer()
    samples = [
        Sample(id=id, prompt=prompt) for id, prompt in (("a", "a lamp"), ("b", "the table " * 9), ("c", "lamp " * 5))
    ]
    lengths = [len(rollouts.encode_prompt(tokenizer, sample.prompt)) for sample in samples]
    cut = rollouts.cut_prompts(tokenizer, samples, lengths[0])
    assert (cut.count, cut.cut, cut.share, cut.id, cut.longest) == (3, 2, 2 / 3, "b", lengths[1])
    assert f"2 of 3 prompts (67%) are longer than max_prompt_tokens and lose their beginning, such as b: {lengths[0]} of its " \
        f"{lengths[1]} tokens are kept" in cut.warning()  # fmt: skip
    none = rollouts.cut_prompts(tokenizer, samples, lengths[1])
    assert (none.cut, none.warning(), none.summary()) == (0, "", {})


def test_an_alarm_rings_at_once_above_a_share_and_can_be_allowed() -> None:
    for alarms, rings in ((Alarms(), True), (Alarms(prompts_cut=None), False)):
        said: list[str] = []
        watch = Watch(alarms, said.append)
        watch.look({"prompts_cut": 0.05}, example="")
        assert not said
        watch.look({"prompts_cut": 0.06}, example="")
        assert bool(said) == rings
        assert all("prompts_cut is 0.06, above 0.05" in line for line in said)


def test_rows_that_lose_a_part_are_named() -> None:
    table = TokenTable({})
    table.add([1, 2], [3, 4], eos_ids=set())
    assert table.cut_warning() == ""
    table.add([1, 2], [3, 4, 5], eos_ids=set(), lost=[(44, 7)])
    said = table.cut_warning()
    assert (
        "prompts of 1 of 2 rows (50%) are longer than max_prompt_tokens and lose their beginning, such as row 1: 2 of its 46"
        in said
    )
    assert (
        "responses of 1 of 2 rows (50%) are longer than max_tokens allows and lose their end, such as row 1: 3 of its 10"
        in said
    )


def test_a_training_leaves_long_prompts_out_on_request(tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    prompts = list(alone(recipe, "policy").prompts.read())
    tokenizer = train_tokenizer()
    lengths = sorted(len(rollouts.encode_prompt(tokenizer, sample.prompt)) for sample in prompts)
    limit = f"stages.policy.rollout.sampling.max_prompt_tokens={lengths[len(lengths) // 2]}"
    share = {}
    for drop in ("false", "true"):
        stage = alone(recipe, "policy", limit, f"stages.policy.rollout.drop_long_prompts={drop}")
        stage.run(a_run(tmp_path / drop))
        share[drop] = max(row["prompts_cut"] for row in log(tmp_path / drop))
    assert share["false"] > 0
    assert share["true"] == 0
    stage = alone(
        recipe,
        "policy",
        "stages.policy.rollout.sampling.max_prompt_tokens=1",
        "stages.policy.rollout.drop_long_prompts=true",
    )
    with pytest.raises(DataError, match="0 are short enough"):
        stage.run(a_run(tmp_path / "none"))
