"""The responses of several stages as candidates of one sample."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.base.errors import DataError
from fgrl.components.readers.merged import Merged
from fgrl.experiments.recipe import load
from fgrl.types import Ref, Response, Sample, write_jsonl


def sample(name: str, *texts: str, prompt: str = "?", **more: Any) -> Sample:
    return Sample(id=name, prompt=prompt, responses=[Response(text=text) for text in texts], **more)


def merged(folder: Path, said: list[str] | None = None, /, skip: int = 0, **stages: list[Sample]) -> Merged:
    for name, samples in stages.items():
        (folder / name).mkdir()
        write_jsonl(folder / name / "samples.jsonl", samples)
    reader = Merged(of={name: Ref(name) for name in stages}, skip=skip)
    reader.setup(SimpleNamespace(path=lambda ref: folder / ref.stage, say=(said if said is not None else []).append))
    return reader


def test_a_prompt_has_the_responses_of_all_stages_in_their_order(tmp_path: Path) -> None:
    strong = [sample("a", "right", reference="r", chosen=0), sample("b", "fine", chosen=0)]
    weak = [sample("b", "so", "so so"), sample("a", "wrong", chosen=0)]
    first, second = merged(tmp_path, strong=strong, weak=weak).read()
    assert [(response.text, response.by) for response in first.responses] == [("right", "strong"), ("wrong", "weak")]
    assert [response.text for response in second.responses] == ["fine", "so", "so so"]
    assert (first.reference, first.chosen, first.verdicts) == ("r", None, None)


def test_who_wrote_a_response_is_kept(tmp_path: Path) -> None:
    own = sample("a").model_copy(update={"responses": [Response(text="x", by="Ann")]})
    (both,) = merged(tmp_path, one=[own], two=[sample("a", "y")]).read()
    assert [response.by for response in both.responses] == ["Ann", "two"]


def test_a_prompt_that_one_stage_lacks_is_kept_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    reader = merged(tmp_path, said, one=[sample("a", "x")], two=[sample("a", "y"), sample("b", "z")])
    assert [len(sample.responses) for sample in reader.read()] == [2, 1]
    assert said == ["merged: 2 prompts, 1 of them without an answer of every stage"]


def test_one_id_for_two_prompts_or_twice_in_a_stage_is_refused(tmp_path: Path) -> None:
    for folder in ("different", "twice"):
        (tmp_path / folder).mkdir()
    with pytest.raises(DataError, match="another prompt"):
        list(merged(tmp_path / "different", one=[sample("a", "x")], two=[sample("a", "y", prompt="!")]).read())
    with pytest.raises(DataError, match="two samples 'a'"):
        list(merged(tmp_path / "twice", one=[sample("a", "x")], two=[sample("a", "y"), sample("a", "z")]).read())


def test_the_stages_are_part_of_the_graph(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("a\nb\n")
    (tmp_path / "r.yaml").write_text(
        "about: x\nstages:\n"
        "  one: &draw {name: sample, prompts: {name: lines, path: topics.txt}, model: a/b, sampling: {max_new_tokens: 4}}\n"
        "  two: {name: sample, prompts: {name: lines, path: topics.txt}, model: c/d, sampling: {max_new_tokens: 4}}\n"
        '  pairs: {name: pair, data: {name: merged, of: {one: "${out:one}", two: "${out:two}"}}, builder: {name: by_rule, '
        'rule: "punctuation:no_comma"}}\n'
    )
    assert sorted(load(tmp_path / "r.yaml").graph()["pairs"]) == ["one", "two"]
