"""The reward `function`: TRL's signature, numbers per token, scored spans, and what counts for cache keys."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import train_tokenizer
from function_helpers import component, reward_of, rollout_of, write

from fgrl.base.errors import DataError, UserCodeError
from fgrl.base.mergeable import as_numbers
from fgrl.experiments.pipeline import keys
from fgrl.kinds import Reward, RewardWrapper, note_step
from fgrl.registry import Problems, dump, walk
from fgrl.types import Message, Rewards, Rollout

TEXTS = ["the lamp, the table", "a bird", ""]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer()


def values(reward: Any, rollout: Rollout) -> list[float | None]:
    return [None if math.isnan(value) else value for value in reward.scored(rollout).response.tolist()]


def test_a_number_for_each_response_is_the_reward_of_its_last_token(tmp_path: Path, tokenizer: Any) -> None:
    reward = reward_of(tmp_path, "def score(completions, **kwargs):\n    return [len(text) for text in completions]\n")
    rollout = rollout_of(TEXTS, tokenizer=tokenizer)
    scored = reward.scored(rollout)
    assert scored.response.tolist() == [19.0, 6.0, 0.0]
    last = rollout.mask.sum(dim=1) - 1
    assert torch.equal(scored.token.sum(dim=1), scored.response)
    assert scored.credit_mask.nonzero()[:, 1].tolist() == last.tolist()
    assert reward.needs() == frozenset()
    assert as_numbers(scored.metrics) == {"score": pytest.approx(25 / 3), "score missing": 0.0}


def test_functions_see_prompts_columns_ids_and_messages_as_in_trl(tmp_path: Path, tokenizer: Any) -> None:
    reward = reward_of(
        tmp_path,
        """
        def score(prompts, completions, completion_ids, answer, trainer_state, log_metric, **kwargs):
            assert prompts[0] == [{"role": "user", "content": "What?"}] and prompts[1] == "Why?"
            assert completions == [[{"role": "assistant", "content": "a bird"}], "a lamp"]
            assert answer == ["bird", None] and kwargs["level"] == [1, 2] and kwargs["id"] == ["0", "1"]
            assert trainer_state.global_step == 3 and trainer_state.max_steps == 12
            log_metric("seen", 0.5)
            return [float(len(ids)) for ids in completion_ids]
        """,
    )
    rollout = rollout_of(
        ["a bird", "a lamp"], [[Message(role="user", content="What?")], "Why?"], tokenizer, answer=["bird", None], level=[1, 2]
    )  # fmt: skip
    reward.at_step(3, 12)
    scored = reward.scored(rollout)
    assert scored.response.tolist() == rollout.mask.sum(dim=1).tolist()
    assert as_numbers(scored.metrics)["seen"] == 0.5


class Halved(RewardWrapper):
    """Half of another reward."""

    def score(self, rollout: Rollout) -> Rewards:
        inner = self.reward.scored(rollout)
        return replace(inner, response=inner.response / 2, token=inner.token / 2)


class Total(Reward):
    """A sum of responses' rewards that was written without `RewardWrapper`."""

    parts: list[Reward]

    def score(self, rollout: Rollout) -> Rewards:
        first, *others = [part.scored(rollout) for part in self.parts]
        return replace(first, response=sum((each.response for each in others), first.response))


def test_a_reward_inside_another_one_knows_the_progress_of_the_training(tmp_path: Path, tokenizer: Any) -> None:
    source = "def score(completions, trainer_state):\n    return [trainer_state.global_step] * len(completions)\n"
    inner, rollout = reward_of(tmp_path, source), rollout_of(["a bird"], tokenizer=tokenizer)
    for reward, expected in ((Halved(reward=inner), 1.5), (Total(parts=[inner]), 3.0)):
        note_step(reward, 3, 12)
        assert values(reward, rollout) == [expected]


def test_the_form_of_completions_can_be_chosen(tmp_path: Path, tokenizer: Any) -> None:
    source = (
        'def score(completions, **kwargs):\n    return [len(completion[0]["content"]) for completion in completions]\n'
    )
    rollout = rollout_of(["a bird"], tokenizer=tokenizer)
    assert values(reward_of(tmp_path, source, completions="messages"), rollout) == [6.0]
    with pytest.raises(UserCodeError, match="`completions: messages`"):
        reward_of(tmp_path, source).scored(rollout)


def test_none_is_missing_and_several_functions_are_weighted_and_added_without_it(
    tmp_path: Path, tokenizer: Any
) -> None:
    write(
        tmp_path,
        """
        def words(completions, **kwargs) -> list[float | None]:
            return [float(len(text.split())) or None for text in completions]

        async def commas(completions, **kwargs) -> list[float | None]:
            return [float(text.count(",")) if "lamp" in text else None for text in completions]
        """,
    )
    reward = component("reward", tmp_path, paths=["rewards.py:words", "rewards.py:commas"], weights=[1.0, -2.0])
    scored = reward.scored(rollout_of(TEXTS, tokenizer=tokenizer))
    assert scored.response[:2].tolist() == [4.0 - 2.0, 2.0]
    assert math.isnan(scored.response[2])
    assert as_numbers(scored.metrics) == {
        "words": 3.0, "words missing": pytest.approx(1 / 3), "commas": 1.0, "commas missing": pytest.approx(2 / 3)
    }  # fmt: skip


TOKENS = """
def score(completion_tokens, **kwargs) -> list[list[float | None]]:
    return [[-1.0 if "," in token else 0.5 if "lamp" in token else None for token in tokens] for tokens in completion_tokens]
"""


def test_numbers_of_tokens_lie_on_their_tokens_and_add_up_to_the_reward(tmp_path: Path, tokenizer: Any) -> None:
    rollout = rollout_of(["the lamp, the table", "a bird"], tokenizer=tokenizer)
    texts = [[rollout.texts[row][a:b] for a, b in own] for row, own in enumerate(rollout.offsets or [])]
    reward = reward_of(tmp_path, TOKENS)
    scored = reward.scored(rollout)
    expected = [[-1.0 if "," in piece else 0.5 if "lamp" in piece else 0.0 for piece in own] for own in texts]
    for row, own in enumerate(expected):
        assert scored.token[row, : len(own)].tolist() == own
        assert scored.credit_mask[row, : len(own)].tolist() == [value != 0 for value in own]
        assert scored.response[row] == sum(own)
    assert -1.0 in expected[0]
    assert reward.needs() == {"offsets"}
    assert reward.fills() == {"criterion"}
    assert torch.equal(scored.criterion[:, 0], scored.token)

    mean = reward_of(tmp_path, TOKENS, total="mean").scored(rollout)
    assert mean.response[0] == pytest.approx(sum(expected[0]) / len(expected[0]))
    last = reward_of(tmp_path, TOKENS, placement="last").scored(rollout)
    assert torch.equal(last.response, scored.response)
    assert last.credit_mask.sum(dim=1).tolist() == [1, 1]


SPANS = """
import re
from fgrl.types import Span

def score(completions, **kwargs) -> list[list[Span]]:
    return [[Span(start=m.start(), end=m.end(), label=-2.0) for m in re.finditer("lamp,|🎉", text)] for text in completions]

def triples(completions, **kwargs) -> list[list[tuple[int, int, float]] | None]:
    return [[(m.start(), m.end(), -2.0) for m in re.finditer("lamp,|🎉", text)] or None for text in completions]
"""


def test_scored_spans_lie_on_their_tokens_and_are_kept_for_the_report(tmp_path: Path, tokenizer: Any) -> None:
    rollout = rollout_of(["a lamp, 🎉 the table", "a bird"], tokenizer=tokenizer)
    scored = reward_of(tmp_path, SPANS).scored(rollout)
    offsets = (rollout.offsets or [])[0]
    inside = [t for t, (a, b) in enumerate(offsets) if a < b and (a in range(2, 7) or a in range(8, 9))]
    negative = (scored.token[0] < 0).nonzero().flatten().tolist()
    assert negative
    assert set(negative) <= set(inside) | {t - 1 for t in inside} | {t for t, (a, b) in enumerate(offsets) if a == 1}
    assert scored.response.tolist() == [scored.token[0].sum(), 0.0]
    assert [[(span.start, span.end) for span in own.spans] for own in scored.annotations] == [[(2, 7), (8, 9)], []]
    triples = reward_of(tmp_path, SPANS, "triples").scored(rollout)
    assert triples.response[0] == scored.response[0]
    assert math.isnan(triples.response[1])
    assert as_numbers(triples.metrics)["spans"] == 1.0


def test_the_value_of_a_span_is_paid_once_however_many_tokens_it_has(tmp_path: Path, tokenizer: Any) -> None:
    source = """
def score(completions, **kwargs) -> list[list[tuple[int, int, float]]]:
    return [[(0, len(text), -0.5)] for text in completions]
"""
    rollout = rollout_of(["the lamp, the table", "a bird"], tokenizer=tokenizer)
    tokens = torch.tensor([sum(start < end for start, end in own) for own in rollout.offsets or []])
    assert int(tokens.min()) > 1
    for spread, total in (("even", -0.5), ("last", -0.5), ("each", -0.5 * tokens)):
        scored = reward_of(tmp_path, source, spread=spread).scored(rollout)
        assert torch.allclose(scored.response, torch.as_tensor(total).expand(2))
        assert torch.allclose(scored.token.sum(dim=1), scored.response), "the total is the response's reward"
    assert reward_of(tmp_path, source).spread == "even"


def test_arrays_tensors_and_generators_are_lists(tmp_path: Path, tokenizer: Any) -> None:
    source = """
    import numpy, torch

    def array(completions, **kwargs) -> numpy.ndarray:
        return numpy.array([len(text) for text in completions])

    def tensor(completions, **kwargs) -> torch.Tensor:
        return torch.tensor([float(len(text)) for text in completions], requires_grad=True)

    def pieces(completions, **kwargs):
        yield from (True for _text in completions)
    """
    rollout = rollout_of(TEXTS, tokenizer=tokenizer)
    assert values(reward_of(tmp_path, source, "array"), rollout) == [19.0, 6.0, 0.0]
    assert values(reward_of(tmp_path, source, "tensor"), rollout) == [19.0, 6.0, 0.0]
    assert values(reward_of(tmp_path, source, "pieces"), rollout) == [1.0, 1.0, 1.0]


def test_arguments_reach_the_functions_that_take_them(tmp_path: Path, tokenizer: Any) -> None:
    source = "def score(completions, most=1, **kwargs):\n    return [min(len(text), most) for text in completions]\n"
    rollout = rollout_of(TEXTS, tokenizer=tokenizer)
    assert values(reward_of(tmp_path, source, arguments={"most": 5}), rollout) == [5.0, 5.0, 0.0]
    with pytest.raises(Problems, match="no function takes 'more'"):
        reward_of(tmp_path, "def score(completions):\n    return [0.0]\n", arguments={"more": 5})


def test_a_column_with_the_name_of_an_argument_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    reward = reward_of(tmp_path, "def score(completions, **kwargs):\n    return [0.0] * len(completions)\n")
    with pytest.raises(DataError, match="'completions'"):
        reward.check_prompts(rollout_of(["a"], tokenizer=tokenizer, completions=["b"]).samples)


# -- files -------------------------------------------------------------------------------------------------------------


def key_of(reward: Any) -> str:
    """What counts for the key of a stage with this reward."""
    files = [(path, keys.sha256(file)) for path, file in walk(reward) if isinstance(file, Path)]
    settings = dump(reward, for_key=True)
    settings.pop("path")
    return repr((files, settings))


def test_contents_of_the_file_of_its_siblings_and_the_functions_name_count_for_the_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        "import counting\n\ndef score(completions):\n    return counting.all_of(completions)\n\nother = score\n",
    )
    write(
        tmp_path,
        "from deeper import one\n\ndef all_of(texts):\n    return [one(text) for text in texts]\n",
        "counting.py",
    )
    write(tmp_path, "def one(text):\n    return 1.0\n", "deeper.py")
    write(tmp_path, "1", "unrelated.py")
    first = key_of(component("reward", tmp_path, path="rewards.py:score"))
    assert first == key_of(component("reward", tmp_path, path="rewards.py:score"))
    assert first != key_of(component("reward", tmp_path, path="rewards.py:other"))
    write(tmp_path, "2", "unrelated.py")
    assert first == key_of(component("reward", tmp_path, path="rewards.py:score"))
    write(tmp_path, "def one(text):\n    return 2.0\n", "deeper.py")
    second = key_of(component("reward", tmp_path, path="rewards.py:score"))
    assert first != second
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("rewards.py", "counting.py", "deeper.py"):
        (elsewhere / name).write_bytes((tmp_path / name).read_bytes())
    assert second == key_of(component("reward", elsewhere, path="rewards.py:score"))


def test_siblings_of_the_same_name_in_two_folders_do_not_meet(tmp_path: Path, tokenizer: Any) -> None:
    rollout = rollout_of(["a"], tokenizer=tokenizer)
    rewards = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, f"value = {number}\n", "helper.py")
        write(folder, "def score(completions):\n    import helper\n    return [helper.value for _ in completions]\n")
        rewards.append(component("reward", folder, path="rewards.py:score"))
    assert [values(reward, rollout) for reward in [*rewards, *rewards]] == [[1.0], [2.0], [1.0], [2.0]]


def test_what_a_file_remembers_does_not_reach_another_component(tmp_path: Path, tokenizer: Any) -> None:
    source = (
        "seen = []\n\ndef score(completions):\n    seen.append(1)\n    return [float(len(seen))] * len(completions)\n"
    )
    rollout = rollout_of(["a"], tokenizer=tokenizer)
    first = reward_of(tmp_path, source)
    assert [values(first, rollout), values(first, rollout)] == [[1.0], [2.0]]
    assert values(reward_of(tmp_path, source), rollout) == [[1.0]][0]


def test_what_a_file_beside_it_remembers_does_not_reach_another_component(tmp_path: Path, tokenizer: Any) -> None:
    write(tmp_path, "calls = []\n", "remembering.py")
    source = (
        "import remembering\n\ndef score(completions):\n    remembering.calls.append(1)\n"
        "    return [float(len(remembering.calls))] * len(completions)\n"
    )
    rollout = rollout_of(["a"], tokenizer=tokenizer)
    first = reward_of(tmp_path, source)
    assert [values(first, rollout), values(first, rollout)] == [[1.0], [2.0]]
    assert values(reward_of(tmp_path, source), rollout) == [1.0]
    assert values(first, rollout) == [3.0]


def test_two_functions_of_one_file_share_one_execution_of_it(tmp_path: Path, tokenizer: Any) -> None:
    write(tmp_path, "shared = []\n", "between.py")
    source = (
        "from between import shared\n\nseen = []\n\ndef one(completions):\n    seen.append(1)\n    shared.append(1)\n"
        "    return [float(len(seen))] * len(completions)\n\ntwo = one\n"
    )
    write(tmp_path, source)
    write(
        tmp_path,
        "from between import shared\n\ndef count(completions):\n    return [float(len(shared))] * len(completions)\n",
        "counting_too.py",
    )
    paths = ["rewards.py:one", "rewards.py:two", "counting_too.py:count"]
    reward = component("reward", tmp_path, paths=paths)
    # 1 of the first function, 2 of the second, and the 2 items that both left in the file that all import
    assert values(reward, rollout_of(["a"], tokenizer=tokenizer)) == [5.0]


def test_prints_go_to_stderr(tmp_path: Path, tokenizer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reward = reward_of(tmp_path, "def score(completions):\n    print('looking')\n    return [0.0] * len(completions)\n")
    reward.scored(rollout_of(["a"], tokenizer=tokenizer))
    assert capsys.readouterr() == ("", "looking\n")
