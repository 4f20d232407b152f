"""Drawn responses are on disk before they are scored, and a training that is killed meanwhile goes on with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import test_online

from fgrl.components.engines import hf
from fgrl.kinds import Drawer, DrawRequest
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.kept import FOLDER, Draws, Kept
from fgrl.training.online import OnlineRounds
from fgrl.types import DrawnResponse, Prompt


class Counting(Drawer):
    """Draws something else each time, as an engine does whose random numbers are not reproducible."""

    def __init__(self) -> None:
        self.calls = self.asked = 0

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        self.calls += 1
        self.asked += len(requests)
        return [DrawnResponse([self.calls, one.row], "length", self.version, [-0.5, -1.0]) for one in requests]


REQUESTS = [DrawRequest(Prompt((1, 20 + row)), Sampling(max_new_tokens=2), 3, row) for row in range(3)]


def test_the_same_requests_get_the_responses_in_the_file(tmp_path: Path) -> None:
    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    drawn = Kept(drawer, file).draw(REQUESTS)
    assert Kept(drawer, file).draw(REQUESTS) == drawn
    other_batches = [replace(one, sampling=Sampling(max_new_tokens=2, batch_size=1)) for one in REQUESTS]
    assert Kept(drawer, file).draw(other_batches) == drawn
    assert drawer.calls == 1


CHANGES = {
    "another prompt": lambda asked: [replace(asked[0], prompt=Prompt((1, 2))), *asked[1:]],
    "another seed": lambda asked: [replace(one, seed=4) for one in asked],
    "another row": lambda asked: [replace(asked[0], row=9), *asked[1:]],
    "another limit": lambda asked: [replace(one, sampling=Sampling(max_new_tokens=3)) for one in asked],
    "another temperature": lambda asked: [replace(one, sampling=Sampling(max_new_tokens=2, temperature=0.5)) for one in asked],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_other_requests_are_drawn(change: str, tmp_path: Path) -> None:
    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    Kept(drawer, file).draw(REQUESTS)
    assert Kept(drawer, file).draw(CHANGES[change](REQUESTS))[0].token_ids[0] == 2


def test_the_version_is_that_of_the_weights_that_drew(tmp_path: Path) -> None:
    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    drawer.take(None, 1)
    Kept(drawer, file).draw(REQUESTS)
    drawer.take(None, 2)
    assert [each.version for each in Kept(drawer, file).draw(REQUESTS)] == [1, 1, 1]


def test_responses_for_later_iterations_are_forgotten_where_an_earlier_one_is_drawn_again(tmp_path: Path) -> None:
    """What follows from other responses is another policy than the one that drew them."""
    drawer = Counting()
    with Draws(drawer, tmp_path, 0) as draws:
        for number in (3, 4, 5):
            draws.of(number).draw(REQUESTS)
        Draws(drawer, tmp_path, 1).of(5).draw(REQUESTS)
        draws.of(4).draw(REQUESTS)
        assert names(tmp_path) == ["0-3.jsonl", "0-4.jsonl", "0-5.jsonl", "1-5.jsonl"]
        draws.of(4).draw([replace(REQUESTS[0], seed=4)])
        assert names(tmp_path) == ["0-3.jsonl", "0-4.jsonl", "1-5.jsonl"]
        draws.forget(before=4)
        assert names(tmp_path) == ["0-4.jsonl", "1-5.jsonl"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).iterdir())


def test_each_request_has_its_own_response_in_the_file(tmp_path: Path) -> None:
    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    drawn = Kept(drawer, file).draw(REQUESTS[:2])
    assert Kept(drawer, file).draw(REQUESTS[::-1])[1:] == drawn[::-1]
    assert drawer.calls == 2
    assert drawer.asked == 3


@pytest.mark.parametrize("content", ["", '{"asked": "', "[", "\x00\x00"])
def test_a_line_that_was_cut_off_has_no_response(content: str, tmp_path: Path) -> None:
    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    file.write_text(content)
    drawn = Kept(drawer, file).draw(REQUESTS)
    assert drawer.asked == 3
    assert Kept(drawer, file).draw(REQUESTS) == drawn
    file.write_bytes(file.read_bytes()[:-20])
    assert Kept(drawer, file).draw(REQUESTS)[:2] == drawn[:2]
    assert drawer.asked == 4
    assert drawn[0].token_logp == [-0.5, -1.0]


def test_responses_are_in_the_file_before_the_caller_has_them(tmp_path: Path) -> None:
    """A conversation goes on with what was drawn, also behind a kill: answers are asked for one after the other."""

    def conversation(drawer: Counting, file: Path, turns: int) -> list[list[int]]:
        drawing, heard = Kept(drawer, file).drawing(), []
        drawing.submit(REQUESTS[:1])
        for _number, response in drawing:
            heard.append(response.token_ids)
            if len(heard) == turns:
                break
            drawing.submit(
                [replace(REQUESTS[0], prompt=Prompt((*REQUESTS[0].prompt.token_ids, *chain.from_iterable(heard))))]
            )
        return heard

    drawer, file = Counting(), tmp_path / "drawn.jsonl"
    cut_short = conversation(drawer, file, 2)
    assert drawer.asked == 2
    assert conversation(drawer, file, 4)[:2] == cut_short
    assert drawer.asked == 4


class Killed(Exception):
    pass


def test_a_training_that_is_killed_while_it_scores_goes_on_with_what_it_drew(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def module(folder: Path) -> Any:
        return test_online.module_of(
            tiny_model_dir, folder, test_online.reward_of(test_online.by_ids), lr=1e-2, iterations=3
        )

    undisturbed = module(tmp_path / "undisturbed")
    undisturbed.fit(checkpoint_every=1)
    score, scored = OnlineRounds._scored, []

    def killed_at_the_second(self: Any, rollout: Any) -> Any:
        scored.append(rollout.response_ids)
        if len(scored) == 2:
            raise Killed
        return score(self, rollout)

    monkeypatch.setattr(OnlineRounds, "_scored", killed_at_the_second)
    with pytest.raises(Killed):
        module(tmp_path / "killed").fit(checkpoint_every=1)
    assert names(tmp_path / "killed") == ["0-1.jsonl"]
    monkeypatch.setattr(OnlineRounds, "_scored", score)
    again = module(tmp_path / "killed")
    drawer, calls = again.rounds.drawer, []
    decode = hf._decode
    monkeypatch.setattr(hf, "_decode", lambda *given: calls.append(drawer.version) or decode(*given))
    again.fit(checkpoint_every=1)
    assert calls == [2]
    trained, wanted = (
        {name: weight for name, weight in each.model.named_parameters() if weight.requires_grad}
        for each in (again, undisturbed)
    )
    assert all(bool((trained[name] == wanted[name]).all()) for name in wanted)
