"""Drawing responses, and going on after a kill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import train_tokenizer

from fgrl import registry
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.types import DrawnResponse, Samples


def test_going_on_with_another_batch_size_draws_every_prompt_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sampling.batch_size` is no part of the key, so what is left of a killed run may be cut at other prompts."""
    know_components()
    topics = tmp_path / "topics.txt"
    topics.write_text("\n".join(f"topic {i}" for i in range(10)))
    drawn: list[list[int]] = []

    def draw(
        _model: Any, _engine: Any, prompts: Any, _sampling: Any, per_prompt: int, *, seed: int, first: int, **_how: Any
    ) -> Any:
        drawn.append(list(range(first, first + len(prompts))))

        def response(text: str) -> DrawnResponse:
            return DrawnResponse([1], "end", text=text)

        return [[response(f"{first + i}.{j}") for j in range(per_prompt)] for i in range(len(prompts))]

    tokenizer = train_tokenizer()
    said: list[str] = []

    def run(batch_size: int, *, stop_after: int | None = None) -> dict[str, Any]:
        node = {
            "name": "sample", "prompts": {"name": "lines", "path": str(topics)}, "model": "nobody/nothing",
            "per_prompt": 2, "sampling": {"max_new_tokens": 4, "max_prompt_tokens": 3, "batch_size": batch_size},
        }  # fmt: skip
        (tmp_path / "stage" / "out").mkdir(parents=True, exist_ok=True)
        asked = Run("samples", tmp_path / "stage", cache=tmp_path, interrupted=lambda: len(drawn) == stop_after)
        monkeypatch.setattr(Run, "say", lambda self, text: said.append(text))
        return registry.build(Stage, node).run(asked)

    monkeypatch.setattr("fgrl.rollouts.collecting.draw", draw)
    monkeypatch.setattr(Run, "model", lambda self, spec: SimpleNamespace(tokenizer=tokenizer))
    with pytest.raises(KeyboardInterrupt):
        run(8, stop_after=2)
    assert drawn == [[0, 1, 2, 3], [4, 5, 6, 7]]
    summary = run(6)
    assert summary["cut prompts"] == 10, "the limit is 3 tokens"
    assert "10 of 10 prompts (100%) are longer than max_prompt_tokens" in said[-1]
    samples = list(Samples(tmp_path / "stage" / "out").read())
    assert [sample.meta["line"] for sample in samples] == [f"topic {i}" for i in range(10)]
    assert [sample.responses[1].text for sample in samples] == [f"{i}.1" for i in range(10)]
