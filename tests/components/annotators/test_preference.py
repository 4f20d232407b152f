"""A judge between every two responses, and the pairs that come of it. The judge answers from a file."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.components.annotators.preference import Preference
from fgrl.components.clients.replay import Replay
from fgrl.components.pair_builders.judged import Judged
from fgrl.kinds import Annotator, Client, Expected
from fgrl.registry import build
from fgrl.types import Completion, Message, PairVerdict, Response, Sample

PROMPT = "[user]\nQ {question}\nA <{first}>\nB <{second}>\n"
SHIPPED = Path(__file__).resolve().parents[3] / "prompts" / "rlaif_judge.txt"


def sample(*texts: str, id: str = "s", **more) -> Sample:
    return Sample(id=id, prompt="which?", responses=[Response(text=text) for text in texts], **more)


def judge(folder: Path, *lines: dict, prompt: str = PROMPT, **options) -> Preference:
    """A judge that answers with the first line that fits."""
    (folder / "judge.txt").write_text(prompt)
    (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Preference(client=Replay(answers=str(folder / "answers.jsonl")), prompt=str(folder / "judge.txt"), **options)


def likes(*best_first: str) -> list[dict]:
    """Lines of a judge that prefers earlier texts to later ones, wherever they are shown."""
    found = []
    for better, worse in combinations(best_first, 2):
        found.append({"contains": [f"A <{better}>", f"B <{worse}>"], "answer": "1"})
        found.append({"contains": [f"A <{worse}>", f"B <{better}>"], "answer": "2"})
    return found


def preferences(annotator: Preference, *samples: Sample) -> list[dict]:
    return [entry for one in annotator.annotate(samples) for entry in entries(one)]


def entries(sample: Sample) -> list[dict]:
    """The sample's verdicts; what nobody recorded is left out."""
    assert sample.verdicts is not None
    return [verdict.model_dump(exclude={"reason", "by"}) for verdict in sample.verdicts]


def test_a_consistent_judge_ranks_all_pairs_and_has_no_position_bias(tmp_path):
    texts = ("c", "a", "d", "b")
    annotator = judge(tmp_path, *likes("a", "b", "c", "d"))
    given = sample(*texts, meta={"kept": 1})
    annotated = annotator.annotate([given])[0]
    assert (given.meta, given.verdicts) == ({"kept": 1}, None), "the sample that was given is not changed"
    assert entries(annotated) == [
        {"first": i, "second": j, "verdict": "first" if texts[i] < texts[j] else "second", "agree": True,
         "p": 1.0 if texts[i] < texts[j] else 0.0}
        for i, j in combinations(range(4), 2)
    ]  # fmt: skip
    assert annotator.counts() == {
        "pairs": 6, "position bias": 0.5, "disagreements": 0, "ties": 0, "missing": 0,
        "questions": 12, "answered": 12, "cached": 0, "asked again": 0, "repaired": 0, "failed": 0,
    }  # fmt: skip
    pairs = Judged().build(annotated)
    assert sorted((pair.chosen, pair.rejected) for pair in pairs) == sorted(combinations("abcd", 2))
    assert [pair.id for pair in pairs] == [f"s#{n}" for n in range(6)]
    assert all(pair.meta == {"kept": 1, "p": 1.0, "agree": True} for pair in pairs)


@pytest.mark.parametrize(("disagreement", "verdict"), [("drop", None), ("tie", "tie"), ("average", "tie")])
def test_a_judge_that_always_says_one_disagrees_with_itself_everywhere(tmp_path, disagreement, verdict):
    annotator = judge(tmp_path, {"any": True, "answer": "1"}, disagreement=disagreement)
    annotated = annotator.annotate([sample("a", "b", "c")])[0]
    assert entries(annotated) == [
        {"first": i, "second": j, "verdict": verdict, "agree": False, "p": 0.5} for i, j in combinations(range(3), 2)
    ]
    counts = annotator.counts()
    assert (counts["position bias"], counts["disagreements"], counts["pairs"]) == (1.0, 3, 3)
    assert Judged().build(annotated) == []


def test_one_order_takes_the_judges_taste_for_a_place_as_it_is(tmp_path):
    annotator = judge(tmp_path, {"any": True, "answer": "2"}, orders="one")
    assert preferences(annotator, sample("a", "b")) == [
        {"first": 0, "second": 1, "verdict": "second", "agree": None, "p": 0.0}
    ]
    assert annotator.counts()["position bias"] == 0.0
    assert annotator.counts()["questions"] == 1


def test_ties_refusals_garbage_and_errors_are_counted_apart(tmp_path):
    annotator = judge(
        tmp_path,
        {"contains": "<t>", "answer": "tie"},
        {"contains": "<r>", "answer": "I'm sorry, but I can't compare those."},
        {"contains": "<g>", "answer": "both have merits"},
        {"contains": "<e>", "error": "503"},
        {"any": True, "answer": "1"},
    )
    samples = [sample("x", other, id=other) for other in "trge"]
    assert [entry["verdict"] for entry in preferences(annotator, *samples)] == ["tie", None, None, None]
    assert [entry["agree"] for entry in preferences(annotator, *samples)] == [True, None, None, None]
    assert annotator.counts() == {
        "pairs": 4, "position bias": None, "disagreements": 0, "ties": 1, "missing": 3,
        "questions": 8, "answered": 2, "cached": 0, "asked again": 4, "repaired": 0, "failed": 6,
        "failed: error": 2, "failed: refused": 2, "failed: unreadable": 2,
    }  # fmt: skip
    assert all(Judged().build(one) == [] for one in annotator.annotate(samples))


def test_a_verdict_in_one_order_only_is_missing(tmp_path):
    annotator = judge(tmp_path, {"contains": "A <a>", "answer": "1"}, {"any": True, "answer": "hm"})
    assert preferences(annotator, sample("a", "b")) == [
        {"first": 0, "second": 1, "verdict": None, "agree": None, "p": None}
    ]


def test_a_tie_in_one_order_leans_to_the_other_when_averaged(tmp_path):
    lines = [{"contains": "A <a>", "answer": "1"}, {"any": True, "answer": "tie"}]
    for option, verdict in {"average": "first", "drop": None, "tie": "tie"}.items():
        assert preferences(judge(tmp_path, *lines, disagreement=option), sample("a", "b")) == [
            {"first": 0, "second": 1, "verdict": verdict, "agree": False, "p": 0.75}
        ]


def test_an_unreadable_verdict_is_asked_for_again(tmp_path):
    annotator = judge(
        tmp_path, {"contains": "'maybe' is none of 1, 2 and tie", "answer": "2"}, {"any": True, "answer": "maybe"}
    )
    assert preferences(annotator, sample("a", "b"))[0]["verdict"] == "tie"
    assert annotator.counts()["asked again"] == 2
    once = judge(tmp_path, {"any": True, "answer": "maybe"}, tries=1)
    assert preferences(once, sample("a", "b"))[0]["verdict"] is None


def test_equal_texts_are_judged_once(tmp_path):
    annotator = judge(tmp_path, {"any": True, "answer": "1"})
    found = preferences(annotator, sample("b", "a ", "b", " a", "a"))
    assert [(entry["first"], entry["second"]) for entry in found] == [(0, 1)]
    assert preferences(annotator, sample("a", "a")) == []


def test_json_verdicts(tmp_path):
    annotator = judge(
        tmp_path,
        {"contains": "A <a>", "answer": {"better": 1}},
        {"contains": "A <b>", "answer": "```json\n{'better': '2'}\n```"},
        {"contains": "<c>", "answer": "I cannot say.", "finish": "stop"},
        verdict="json",
    )
    found = preferences(annotator, sample("a", "b"), sample("c", "d"))
    assert [entry["verdict"] for entry in found] == ["first", None]
    assert annotator.counts()["repaired"] == 1
    assert annotator.counts()["failed: refused"] == 2
    request = annotator.asks([sample("a", "b")])[0]
    assert request.json_schema["properties"]["better"]["enum"] == ["1", "2", "tie"]
    assert request.json_schema["additionalProperties"] is False
    cut = judge(tmp_path, {"any": True, "answer": '{"better": "1"}', "finish": "length"}, verdict="json")
    assert preferences(cut, sample("a", "b"))[0]["verdict"] is None
    assert cut.counts()["failed: truncated"] == 2


def test_log_probabilities_decide_whatever_the_judge_writes(tmp_path):
    """Odds of 3 to 1 for a where a is shown first, 1 to 4 where it is shown second: p = (3/4 + 4/5) / 2."""
    annotator = judge(
        tmp_path,
        {"contains": "A <a>", "answer": "The", "finish": "length",
         "logprobs": {"The": math.log(0.6), "1": math.log(0.2), " 1": math.log(0.1), "2": math.log(0.1)}},
        {"contains": "A <b>", "answer": "2", "logprobs": {"1": math.log(0.1), "2": math.log(0.4)}},
        {"contains": "<c>", "answer": "1", "logprobs": {"x": -0.1}},
        verdict="logprobs",
    )  # fmt: skip
    first, second = preferences(annotator, sample("a", "b"), sample("c", "d"))
    assert first == {"first": 0, "second": 1, "verdict": "first", "agree": True, "p": pytest.approx(0.775)}
    assert second["verdict"] is None
    counts = annotator.counts()
    assert counts["without log-probabilities of 1 and 2"] == 2
    assert (counts["missing"], counts["failed"]) == (1, 0)
    request = annotator.asks([sample("a", "b")])[0]
    assert (request.max_tokens, request.logprobs) == (1, 20)


def test_weighing_takes_the_probability_from_the_tokens_and_the_verdict_from_the_text(tmp_path):
    lines = [
        {"contains": "A <a>", "answer": "1", "logprobs": {"1": math.log(0.9), "2": math.log(0.1)}},
        {"any": True, "answer": "1", "logprobs": {"1": math.log(0.6), "2": math.log(0.4)}},
    ]
    weighed = preferences(judge(tmp_path, *lines, weigh=True), sample("a", "b"))[0]
    assert weighed == {"first": 0, "second": 1, "verdict": "first", "agree": False, "p": pytest.approx(0.65)}
    plain = preferences(judge(tmp_path, *lines), sample("a", "b"))[0]
    assert (plain["verdict"], plain["p"]) == ("tie", 0.5)


def test_the_prompt_gets_the_question_and_what_was_found(tmp_path):
    prompt = "[system]\n{context}\n[user]\n{question}|{reference}|{first}|{second}\n"
    annotator = judge(tmp_path, prompt=prompt)

    def asked(one: Sample) -> list[str]:
        return [message.content for message in annotator.asks([one])[0].messages]

    turns = [Message(role="system", content="found {first}"), Message(role="user", content="who?")]
    chat = sample("a", "b", reference=["r", "s"]).model_copy(update={"prompt": turns})
    assert asked(chat) == ["found {first}", "who?|r / s|a|b"], "braces in the data stay as they are"
    text = sample("a", "b", reference="r", meta={"question": "why?", "context": ["x", {"url": "y"}]})
    assert asked(text) == ['x\n\n{"url": "y"}', "why?|r|a|b"]
    assert asked(sample("a", "b", reference="r"))[0] == "(none)"
    with pytest.raises(DataError, match="sample s has no reference"):
        asked(sample("a", "b"))


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match=r"lacks the placeholder \{second\}"):
        judge(tmp_path, prompt="{first}").asks([sample("a", "b")])
    with pytest.raises(DataError, match="sample s has no responses"):
        judge(tmp_path).asks([Sample(id="s", prompt="p")])
    with pytest.raises(DataError, match=r"sample s has no verdicts"):
        Judged().build(sample("a", "b"))


def test_the_shipped_prompt_and_the_recipe_keys():
    answers = Path(__file__)  # any file
    client = {"name": "replay", "answers": str(answers)}
    annotator = build(Annotator, {"name": "preference", "client": client, "prompt": str(SHIPPED)})
    request = annotator.asks([sample("one", "two", meta={"context": "facts"})])[0]
    assert [message.role for message in request.messages] == ["system", "user"]
    assert "facts" in request.messages[1].content
    assert request.messages[1].content.index("one") < request.messages[1].content.index("two")


@given(
    st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6), max_size=4), st.sampled_from(["both", "one"])
)
def test_asks_is_what_annotate_asks_and_asks_at_most_bounds_them(tmp_path_factory, drawn, orders):
    folder = tmp_path_factory.mktemp("judge")
    annotator = judge(folder, {"any": True, "answer": "1"}, orders=orders)
    samples = [sample(*texts, id=str(n)) for n, texts in enumerate(drawn)]
    asked: list = []

    class Noting(Client):
        def complete(self, requests):
            asked.extend(requests)
            return [Completion(text="1", finish="stop") for _ in requests]

    annotator.client = Noting()
    annotator.annotate(samples)
    assert asked == annotator.asks(samples)
    pairs = sum(math.comb(len(set(texts)), 2) for texts in drawn)
    assert len(asked) == pairs * (2 if orders == "both" else 1)
    assert len(asked) <= annotator.asks_at_most(Expected(len(drawn), max(map(len, drawn), default=0)))


# -- pairs -------------------------------------------------------------------------------------------------------------


def entry(first: int, second: int, verdict: str | None, p: float | None, agree: bool | None = True) -> PairVerdict:
    return PairVerdict(first=first, second=second, verdict=verdict, agree=agree, p=p)


def judged(*verdicts: PairVerdict, **options) -> list[tuple[str, str]]:
    one = Sample(
        id="s", prompt="p", responses=[Response(text=text, finished=text != "c") for text in "abc"],
        verdicts=list(verdicts),
    )  # fmt: skip
    return [(pair.chosen, pair.rejected) for pair in Judged(**options).build(one)]


def test_options_of_judged():
    sure, torn = entry(0, 1, "second", 0.1), entry(0, 2, "first", 0.6, agree=False)
    tie, missing, changed = entry(1, 2, "tie", 0.5), entry(1, 2, None, None), entry(1, 2, None, 0.5, agree=False)
    assert judged(torn, tie, missing, changed, sure) == [("a", "c"), ("b", "a")]
    assert judged(torn, sure, max_per_prompt=1) == [("b", "a")]
    assert judged(torn, sure, agreed_only=True) == [("b", "a")]
    assert judged(torn, sure, min_margin=0.5) == [("b", "a")]
    assert judged(torn, sure, min_margin=0.9) == []
    assert judged(torn, sure, finished_only=True) == [("b", "a")]
    assert judged(entry(0, 1, "first", 1.0, agree=None), agreed_only=True) == [("a", "b")], "asked in one order"


def test_verdicts_of_people_make_pairs():
    def vote(by: str, first: int, second: int, verdict: str) -> PairVerdict:
        return PairVerdict(first=first, second=second, verdict=verdict, by=by)

    votes = [
        vote("ada", 0, 1, "first"), vote("bo", 1, 0, "first"), vote("cy", 0, 1, "tie"), vote("di", 0, 1, "first"),
        vote("ada", 0, 2, "first"), vote("bo", 0, 2, "second"), vote("ada", 2, 1, "second"),
    ]  # fmt: skip
    assert judged(*votes) == [("a", "b"), ("b", "a"), ("a", "b"), ("a", "c"), ("c", "a"), ("b", "c")]
    assert judged(*votes, several="majority") == [("a", "b"), ("b", "c")]
    assert judged(*votes, several="majority", min_margin=0.5) == [("b", "c")]
    assert judged(*votes, by=["bo"]) == [("b", "a"), ("c", "a")]
    assert judged(*votes, by=["cy"]) == []
    assert Judged(unjudged="skip").build(sample("a", "b")) == []


def test_a_pair_keeps_how_sure_the_judge_was_of_it():
    one = Sample(
        id="s", prompt="p", responses=[Response(text="a"), Response(text="b")],
        verdicts=[entry(0, 1, "second", 0.1)], meta={"topic": "x"},
    )  # fmt: skip
    assert Judged().build(one)[0].meta == {"topic": "x", "p": 0.9, "agree": True}
