"""Mistakes of users' code: each is reported in at most five lines that begin with the user's own file and line."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import train_tokenizer
from function_helpers import component, rollout_of, write
from scratch_registry import scratch
from user_mistakes import AT_RUN_TIME, HEAD, SPANS
from wording import said

from fgrl.base.errors import UserCodeError
from fgrl.experiments.pipeline.endings import ending
from fgrl.registry import Problems, build, import_file
from fgrl.types import Segmentable

WHEN_CHECKED = {
    "a syntax error": ("def score(completions:\n", "rewards.py:1:"),
    "an import error": ("import not_there\n" + HEAD + "    return []\n", "rewards.py:1:"),
    "an error while importing": ("x = 1 / 0\n" + HEAD + "    return []\n", "rewards.py:1:"),
    "a missing function": ("def scores(completions):\n    return []\n", "rewards.py"),
    "a class": ("class score:\n    pass\n", "rewards.py:1:"),
    "a value": ("score = 3\n", "rewards.py:1:"),
    "a wrong signature": ("def score(completions, /):\n    return []\n", "rewards.py:1:"),
    "an annotation that means nothing": ("def score(completions) -> list[str]:\n    return []\n", "rewards.py:1"),
    "an annotation that is not known": ("from __future__ import annotations\ndef score(completions) -> list[Spam]:\n    return []\n", "rewards.py:2:"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer()


def shown(error: BaseException, folder: Path) -> list[str]:
    """What `fgrl run` prints about the error, as lines. Its code is that of users' code."""
    how = ending(error, folder)
    assert how.exit_code == UserCodeError.exit_code == 7
    assert not how.bug
    return how.message.splitlines()


def test_there_are_more_than_twenty() -> None:
    assert len(AT_RUN_TIME) + len(WHEN_CHECKED) > 20


@pytest.mark.parametrize("mistake", AT_RUN_TIME)
def test_a_mistake_of_a_function_is_reported_with_its_line(
    mistake: str, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, line = AT_RUN_TIME[mistake]
    write(tmp_path, source)
    monkeypatch.chdir(tmp_path)
    reward = component("reward", tmp_path, path="rewards.py:score")
    rollout = rollout_of(["a", "bird"], tokenizer=tokenizer)
    with pytest.raises(UserCodeError) as caught:  # noqa: PT012
        reward.check_prompts(rollout.samples)
        reward.scored(rollout)
    lines = shown(caught.value, tmp_path)
    assert 3 <= len(lines) <= 5
    assert lines[0].startswith(f"rewards.py:{line}: score ")
    assert lines[1].endswith(source.splitlines()[line - 1])
    said("run", f"function: {mistake}", "\n".join(lines))
    assert "run the same command" in lines[-1]
    raises = "raised" in lines[0]
    assert ("run.log" in lines[-1]) == raises
    assert ("Traceback" in ending(caught.value, tmp_path).details) == raises


@pytest.mark.parametrize("mistake", WHEN_CHECKED)
def test_a_function_that_cannot_be_used_is_reported_when_the_recipe_is_checked(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, place = WHEN_CHECKED[mistake]
    write(tmp_path, source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problems) as caught:
        component("reward", tmp_path, path="rewards.py:score")
    text = str(caught.value.problems[0])
    assert len(text.splitlines()) <= 4
    assert place in text
    said("validate", f"function: {mistake}", text)


def test_an_error_in_a_sibling_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "import helper\n\ndef score(completions):\n    return []\n")
    write(tmp_path, "value = 1\nvalue.missing\n", "helper.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problems, match=r"helper\.py:2:1: .*cannot be imported: AttributeError"):
        component("reward", tmp_path, path="rewards.py:score")


def test_an_error_of_a_sibling_at_run_time_is_at_its_line(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "import helper\n\ndef score(completions):\n    return [helper.of(text) for text in completions]\n")
    write(tmp_path, "def of(text):\n    return text.missing\n", "helper.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserCodeError) as caught:
        component("reward", tmp_path, path="rewards.py:score").scored(rollout_of(["a"], tokenizer=tokenizer))
    assert shown(caught.value, tmp_path)[0].startswith("helper.py:2: score raised AttributeError")


@pytest.mark.parametrize("mask", ["[[True, False]] * 2", "np.ones((2, 2), bool)", "[torch.tensor([True])] * 2"])
def test_a_mask_is_no_list_of_boundaries(mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"import numpy as np\nimport torch\n\ndef cut(completions):\n    return {mask}\n")
    monkeypatch.chdir(tmp_path)
    rollout = rollout_of(["the lamp", "a bird"])
    view = Segmentable(rollout.response_ids, rollout.mask, rollout.eos, texts=rollout.texts, offsets=rollout.offsets)
    with pytest.raises(UserCodeError, match=r"rewards\.py:5: cut returned True \(bool\) for boundary 0 of text 0"):
        component("segmenter", tmp_path, path="rewards.py:cut").starts(view)
    write(
        tmp_path,
        "import numpy as np\nimport torch\n\ndef cut(completions):\n    return [np.arange(2), torch.arange(2)]\n",
    )
    assert component("segmenter", tmp_path, path="rewards.py:cut").starts(view)[:, 0].all()


def test_truth_values_of_libraries_are_values_of_spans(tmp_path: Path, tokenizer: Any) -> None:
    values = "[np.bool_(True), torch.tensor(True), torch.tensor([2.0]), True, np.float32(0.5)]"
    write(tmp_path, f"import numpy as np\nimport torch\n{SPANS}    return [[(0, 1, value) for value in {values}]]\n")
    scored = component("reward", tmp_path, path="rewards.py:score").scored(rollout_of(["a"], tokenizer=tokenizer))
    assert [span.label for span in scored.annotations[0].spans] == [1.0, 1.0, 2.0, 1.0, 0.5]


def test_a_failing_async_function_does_not_wait_for_the_others(tmp_path: Path, tokenizer: Any) -> None:
    source = """
    import asyncio

    cancelled = []

    async def slow(completions):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def wrong(completions):
        await asyncio.sleep(0)
        raise ValueError("no judge")
    """
    write(tmp_path, source)
    reward = component("reward", tmp_path, paths=["rewards.py:slow", "rewards.py:wrong"])
    began = time.monotonic()
    with pytest.raises(UserCodeError, match="wrong raised ValueError: no judge"):
        reward.scored(rollout_of(["a"], tokenizer=tokenizer))
    assert time.monotonic() - began < 30
    assert import_file(tmp_path / "rewards.py").cancelled == [1]
    write(tmp_path, "import asyncio\nasync def wrong(completions):\n    raise asyncio.CancelledError\n")
    with pytest.raises(UserCodeError, match="wrong raised CancelledError"):
        component("reward", tmp_path, path="rewards.py:wrong").scored(rollout_of(["a"], tokenizer=tokenizer))


def test_a_path_without_a_function_names_those_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, HEAD + "    return []\n")
    with pytest.raises(Problems, match=r"write rewards\.py:score"):
        component("reward", tmp_path, path="rewards.py")
    with pytest.raises(Problems, match="no such file"):
        component("reward", tmp_path, path="reward.py:score")
    write(tmp_path, "def scores(completions):\n    return []\n")
    with pytest.raises(Problems, match=r'did you mean "scores"'):
        component("reward", tmp_path, path="rewards.py:score")


# -- components of imported files --------------------------------------------------------------------------------------

OWN = '''
import torch
from fgrl.kinds import Metric, Reward, Segmenter
from fgrl.registry import register
from fgrl.types import Rewards

@register("own")
class Own(Reward):
    """One of my own."""

    def score(self, rollout):
        {score}

@register("own_cuts")
class OwnCuts(Segmenter):
    """One of my own."""

    def starts(self, view):
        return view.mask.float()

@register("own_numbers")
class OwnNumbers(Metric):
    """One of my own."""

    def measure(self, answers, *, baseline=None):
        return [0.5]
'''

OWN_MISTAKES = {
    "a list": ("return [0.0 for text in rollout.texts]", 11, "returned a list of 2 float", "a function that returns a list"),
    "an exception": ("raise ValueError('no\\nway')", 12, "Own.score raised ValueError: no way", "correct it"),
    "a wrong shape": ("return Rewards(torch.zeros(3), torch.zeros(rollout.mask.shape), rollout.mask)", 11, "response of the shape [3]", "response [2]"),
    "a wrong dimension": ("return Rewards(torch.zeros(2), torch.zeros(2), rollout.mask)", 12, "TypeError: Rewards.token", "correct it"),
    "NaN in a token": ("return Rewards(torch.zeros(2), torch.full(rollout.mask.shape, torch.nan), rollout.mask)", 11, "not finite", "credit_mask"),
    "a mask of numbers": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask.float())", 11, "credit_mask of torch.float32", "of bool"),
    "a narrow column": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask, columns={'weight': torch.ones(2, 1)})", 11, "the column \"weight\" of the shape [2, 1]", "or [2, "),
    "a column of other rows": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask, columns={'weight': torch.ones(3)})", 11, "of the shape [3]", "columns [2] or [2, "),
    "a column on a graph": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask, columns={'weight': torch.ones(2, requires_grad=True)})", 11, "part of an autograd graph", "detach()"),
    "NaN in a column": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask, columns={'weight': torch.full(rollout.mask.shape, torch.nan)})", 11, "that is not finite", "has the reward NaN"),
    "infinity in a column of responses": ("return Rewards(torch.zeros(2), torch.zeros(rollout.mask.shape), rollout.mask, columns={'weight': torch.full((2,), torch.inf)})", 11, "that is not finite", "has the reward NaN"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OWN_MISTAKES)
def test_a_mistake_of_a_component_is_reported_with_its_line(
    mistake: str, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, line, problem, step = OWN_MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    with scratch():
        import_file(write(tmp_path, OWN.format(score=body), "own.py"))
        with pytest.raises(Exception) as caught:  # noqa: PT011
            build("reward", "own").scored(rollout_of(["a", "bird"], tokenizer=tokenizer))
        lines = shown(caught.value, tmp_path)
    assert 3 <= len(lines) <= 5
    assert lines[0].startswith(f"own.py:{line}: ")
    assert problem in lines[0]
    assert step in "\n".join(lines[2:])


def test_segmenters_and_metrics_are_checked_too(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fgrl.measuring.held_out import measure

    monkeypatch.chdir(tmp_path)
    rollout = rollout_of(["a", "bird"], tokenizer=tokenizer)
    view = Segmentable(ids=rollout.response_ids, mask=rollout.mask, eos=rollout.eos)
    with scratch():
        import_file(write(tmp_path, OWN.format(score="return None"), "own.py"))
        with pytest.raises(
            UserCodeError, match=r"own\.py:18: starts of the segmenter 'own_cuts' returned a tensor of torch.float32"
        ):
            build("segmenter", "own_cuts").segment_ids(view)
        with pytest.raises(
            UserCodeError, match=r"own\.py:25: measure of the metric 'own_numbers' returned a list of 1 float"
        ):
            measure([build("metric", "own_numbers")], {}, "base")


def test_a_name_that_is_taken_is_reported_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = textwrap.dedent(OWN.format(score="return None")).replace('register("own")', 'register("rubric")')
    with scratch(), pytest.raises(Problems) as caught:
        import_file(write(tmp_path, source, "taken.py"))
    text = str(caught.value.problems[0])
    assert text.startswith("taken.py:7:")
    assert "is taken by" in text


def test_an_error_of_fgrl_itself_stays_a_bug(tmp_path: Path) -> None:
    assert ending(ValueError("no user code"), tmp_path).bug


def test_errors_that_people_can_act_on_keep_their_ending(tmp_path: Path, tokenizer: Any) -> None:
    from fgrl.base.errors import DataError

    write(tmp_path, "from fgrl.base.errors import DataError\n\n" + HEAD + "    raise DataError('no rows')\n")
    with pytest.raises(DataError):
        component("reward", tmp_path, path="rewards.py:score").scored(rollout_of(["a"], tokenizer=tokenizer))
