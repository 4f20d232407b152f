"""What plans report of requests, known ones and those about texts that do not exist yet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fgrl.base.errors import DataError, NotYet
from fgrl.commands.checking import estimate_lines
from fgrl.components.clients.openai import OpenAI
from fgrl.components.judges.llm import LLMJudge
from fgrl.components.rewards.rubric import Rubric
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.feedback.llm import estimating
from fgrl.feedback.llm.estimating import Load
from fgrl.kinds import UNDRAWN, Annotator, AtMost, Client, Expected, Metric, ToDraw, stated
from fgrl.kinds.specs import Sampling
from fgrl.types import Completion, Criterion, Message, Request, Sample

PROMPT = str(Path(__file__).parents[2] / "prompts" / "judge_criterion.txt")


class Priced(Client):
    """Costs 1 USD per million prompt tokens and 2 per million completion tokens; a token is a character."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        raise AssertionError("a plan asks nothing")

    def count_tokens(self, request: Request) -> int:
        return len(request.messages[-1].content)

    def price(self) -> tuple[float, float]:
        return 1.0, 2.0


def request(text: str, max_tokens: int | None = 10) -> Request:
    return Request(messages=[Message(role="user", content=text)], max_tokens=max_tokens)


def test_a_bound_fills_in_the_longest_texts() -> None:
    load = estimating.bound(Priced(), [AtMost(request("abc"), 4, 100), AtMost(request("a", 5), 1, 7)])
    assert load == Load(5, 4 * 103 + 8, 4 * 10 + 5, longest=113, fewer=True)
    assert (
        estimating.bound(Priced(), [AtMost(request("abc"), 4, 100), AtMost(request("a", None), 1, 7)]).completion
        is None
    )


def test_a_call_that_may_exceed_the_context_length_is_reported() -> None:
    short = OpenAI(model="gpt-4-0613", max_tokens=100)
    judged = [AtMost(request("Which one is better?", 100), 276, 6656 + 2 * 1536)]
    load = estimating.bound(short, judged)
    total = estimating.bill([(short, load), (Priced(), load)], bound=True)
    assert total is not None
    assert total["too long"] == [{"model": "gpt-4-0613", "context": 8192, "tokens": load.longest}]
    assert 9728 < load.longest < 9728 + 200
    text = estimate_lines({"calls": total})[0]
    assert f"warning: a call may need {load.longest:,} tokens with its answer, and gpt-4-0613 reads 8,192" in text
    longer = OpenAI(model="gpt-4o", max_tokens=100)
    assert "too long" not in (estimating.bill([(longer, estimating.bound(longer, judged))]) or {})


def test_known_requests_beyond_the_context_length_are_reported(tmp_path: Path) -> None:
    client = OpenAI(model="gpt-4-0613")
    peek = Peek(tmp_path, None, {})
    long = (client, estimating.known(client, [request("word " * 9000), request("short")], peek))
    short = (client, estimating.known(client, [request("short")], peek))
    for loads in ([long], [short, long]):
        found = estimating.bill(loads)
        assert found is not None
        assert [entry["context"] for entry in found["too long"]] == [8192]
    assert "too long" not in (estimating.bill([short]) or {})


def test_bounds_of_several_clients_are_added_and_what_is_unknown_stays_unknown() -> None:
    one, other = Load(5, 1_000_000, 500_000), Load(1, 1_000_000, None)
    assert estimating.bill([(Priced(), replace(one, fewer=True))], bound=True) == {
        "calls": 5, "cached": 0, "prompt tokens": 1_000_000, "completion tokens": 500_000, "usd": 2.0, "bound": True,
        "fewer": True,
    }  # fmt: skip
    assert estimating.bill([(Priced(), one), (Priced(), other)], bound=True) == {
        "calls": 6, "cached": 0, "prompt tokens": 2_000_000, "completion tokens": None, "usd": None, "bound": True,
    }  # fmt: skip
    assert estimating.bill([], bound=True) is None


def test_an_unfinished_pass_counts_its_most_expensive_prompts_whichever_come() -> None:
    loads = [Load(calls, 10 * (9 - calls), calls) for calls in (1, 5, 3, 0)]
    # two passes of three prompts, then two more
    found = estimating.of_passes(loads, drawn=8, per_pass=3)
    assert found == Load(2 * 9 + 8, 2 * (90 + 80 + 60) + 170, 2 * 9 + 8, fewer=True)
    worst = max(
        2 * sum(load.calls for load in whole) + sum(load.calls for load in whole[:2])
        for whole in itertools.permutations(loads, 3)
    )
    assert found.calls == worst
    assert estimating.of_passes([Load(1, 1, None), Load(1, 1, 1)], 2, 2).completion is None


@pytest.mark.parametrize(
    ("problem", "section"),
    [
        (NotYet("sample"), {"calls": {"after": "sample"}}),
        (DataError("no column\nrow: 1"), {"calls": {"unknown": "no column"}}),
    ],
)
def test_what_cannot_be_known_is_reported_in_one_way(problem: Exception, section: dict) -> None:
    def compute() -> dict:
        raise problem

    assert estimating.section(compute) == section
    assert estimating.section(lambda: {"calls": 1}) == {"calls": {"calls": 1}}
    assert estimating.section(lambda: None) == {}


def test_responses_that_are_not_drawn_stand_as_a_placeholder_in_what_is_known() -> None:
    samples = [Sample(id=text, prompt=text) for text in ("a", "bb")]
    drawing = ToDraw(lambda: samples, lambda: (2, 1), ["x", "y"], 3, Sampling(max_new_tokens=7))
    most = drawing.about_each(lambda sample, response: [request(f"{sample.prompt} {response}")])
    assert most == [AtMost(request(f"{text} {UNDRAWN}"), 6, 7) for text in ("a", "bb")]


# -- what a component inherits -----------------------------------------------------------------------------------------


class Silent(Annotator):
    """States nothing."""

    client: Client | None = None

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        return list(samples)


class Measures(Metric):
    """Asks nobody."""

    def measure(self, answers, *, baseline=None):
        return {}


def test_by_default_nothing_is_asked_of_nobody() -> None:
    client = Priced()
    assert (Silent().asked_client(), Measures().asked_client()) == (None, None)
    assert Silent(client=client).asked_client() is client
    assert Silent().asks([]) == Measures().asks({}) == []
    assert stated(Silent(), "asks_at_most", Expected(1)) is None


def test_a_rubric_asks_what_its_judge_asks() -> None:
    judge = LLMJudge(client=Priced(), prompt=PROMPT)
    sample = Sample(id="s", prompt="Sing.", rubric=[Criterion(text="It rhymes."), Criterion(text="It is kind.")])
    reward = Rubric(judge=judge)
    assert reward.asks([(sample, "la la")]) == judge.asks([(sample, "la la", one) for one in sample.rubric])
    drawing = ToDraw(lambda: [sample], lambda: (1, 1), ["policy"], 4, Sampling(max_new_tokens=7))
    assert reward.asks_at_most(drawing) == [AtMost(ask, 4, 7) for ask in reward.asks([(sample, UNDRAWN)])]
    assert reward.asked_client() is judge.client
    assert Rubric(judge=None).asks([(sample, "la la")]) == []
