"""A stage that is asked to stop makes no further pass of a model, keeps what is finished, and goes on to the same bytes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from tiny_recipe import a_run, alone, weights

from fgrl import registry, rollouts
from fgrl.base import stops
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.rollouts import reference_sums


class Passes:
    """The passes of models; the run is asked to stop just before pass `last + 1`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.last = 0, -1
        self._point = stops.point
        monkeypatch.setattr(stops, "point", self.point)

    def point(self) -> None:
        if self.count == self.last:
            stops.ask(threading.get_ident())
        self._point()
        self.count += 1

    def stopped(self, after: int, work: Any) -> None:
        """Do `work` until so many passes are made."""
        self.count, self.last = 0, after
        try:
            with pytest.raises(KeyboardInterrupt):
                work()
        finally:
            stops.forget(threading.get_ident())
        assert self.count == after
        self.last = -1

    def of(self, work: Any) -> int:
        """How many `work` makes."""
        self.count = 0
        work()
        return self.count


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(monkeypatch)


@pytest.mark.parametrize("name", ["sample", "evaluate"])
def test_answers_are_kept_in_whole_batches(name: str, tmp_path: Path, tiny_model_dir: Path, passes: Passes) -> None:
    know_components()
    topics = tmp_path / "topics.txt"
    topics.write_text("\n".join(f"topic {i}" for i in range(6)))
    node = {
        "name": name,
        "prompts": {"name": "lines", "path": str(topics)},
        "sampling": {"max_new_tokens": 5, "min_new_tokens": 5, "batch_size": 2},
    }
    more: dict[str, Any] = {"model": str(tiny_model_dir)}
    if name == "evaluate":
        more = {"models": {"sft": str(tiny_model_dir)}, "baseline": "sft", "metrics": ["length", "kl"], "show": 0}

    def run(folder: str) -> None:
        registry.build(Stage, node | more).run(a_run(tmp_path / folder))

    all_passes = passes.of(lambda: run("undisturbed"))
    passes.stopped(all_passes // 2, lambda: run("stopped"))
    kept = list((tmp_path / "stopped").glob("*/0*.jsonl"))
    assert [file.name for file in kept] == ["00000000-00000002.jsonl"]
    assert passes.of(lambda: run("stopped")) == all_passes - all_passes // 3
    file = {"sample": "samples.jsonl", "evaluate": "answers.jsonl"}[name]
    ends = [(tmp_path / folder / "out" / file).read_bytes() for folder in ("undisturbed", "stopped")]
    assert ends[0] == ends[1]


def test_a_training_goes_on_to_the_same_bytes_wherever_it_stopped(
    tmp_path: Path, tiny_model_dir: Path, passes: Passes
) -> None:
    """In its first iteration and in its last one; while it draws, scores and trains."""
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)

    def train(folder: str) -> None:
        alone(recipe, "policy", "stages.policy.train.iterations=2").run(a_run(tmp_path / folder))

    all_passes = passes.of(lambda: train("undisturbed"))
    for after in (all_passes // 6, all_passes // 2, 2 * all_passes // 3, all_passes - 2):
        folder = f"stopped after {after}"
        passes.stopped(after, lambda: train(folder))  # noqa: B023
        if after in (all_passes // 6, all_passes - 2):
            assert (tmp_path / folder / "last.ckpt").exists() == (after > all_passes // 2)
        train(folder)
        assert weights(tmp_path / folder / "out") == weights(tmp_path / "undisturbed" / "out"), folder


def test_the_pass_of_a_reference_keeps_what_is_done(tmp_path: Path) -> None:
    read: list[int] = []

    def compute(unit: Any) -> torch.Tensor:
        if len(read) == 3 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        read.append(int(unit.response_ids[0, 0]))
        return unit.response_ids.double().sum(1)

    stopped: list[bool] = []
    units = [rollouts.pad([[1, 5]], [[7 + i, 8]], 0, {2}) for i in range(5)]
    file, run = tmp_path / "sums.safetensors", a_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        reference_sums.ReferenceSums().fill(units, compute, "", file, run, 0, 1)
    reference_sums.ReferenceSums().fill(units, compute, "", file, run, 0, 1)
    assert read == [7, 8, 9, 10, 11]
