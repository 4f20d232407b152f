"""What a server answers is a complete response, or it is asked for again, and never trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_helpers import tiny
from stub_engine import SAMPLING, expected, requests, stage
from stub_vllm import BROKEN, VOCABULARY, WRONG

from fgrl import models
from fgrl.base.errors import EngineFailed, UsageError
from fgrl.kinds import DrawRequest, Early
from fgrl.kinds.specs import Sampling
from fgrl.rollouts import decode
from fgrl.rollouts.serving import completions
from fgrl.rollouts.serving.completions import BadAnswer, Reader
from fgrl.types import Prompt


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> models.LanguageModel:
    return tiny(tiny_model_dir)


@pytest.fixture(scope="module")
def opened(model, tmp_path_factory):
    """One server for all tests of answers."""
    with stage(tmp_path_factory.mktemp("stage"), transfer="files") as running, running.engine.open(model) as drawer:
        drawer.take(model, 3)
        yield running, drawer


def test_there_are_more_than_twenty_kinds_of_faults() -> None:
    assert len(WRONG) + len(BROKEN) >= 30


def test_tokens_log_probabilities_ends_and_versions_arrive(opened) -> None:
    running, drawer = opened
    asked = requests(12)
    drawn = drawer.draw(asked)
    assert [(one.token_ids, one.token_logp) for one in drawn] == [expected(request) for request in asked]
    assert {one.finish for one in drawn} == {"end", "length"}
    for one in drawn:
        assert one.version == 3
        assert one.finish == ("end" if one.token_ids[-1] in (2, 3) else "length")
        assert len(one.token_ids) == 12 or one.finish == "end"
    assert len(set(running.served())) == 12


def test_neither_order_nor_company_changes_a_response(opened) -> None:
    _running, drawer = opened
    asked = requests(8)
    assert drawer.draw(asked[::-1])[::-1] == drawer.draw(asked)
    assert drawer.draw([asked[5]]) == [drawer.draw(asked)[5]]


def test_responses_come_as_they_finish_and_requests_as_they_are_asked(opened) -> None:
    """One server waits before its first answer; what is asked behind the others is answered in the meantime."""
    running, drawer = opened
    asked = requests(9, seed=5)
    running.order(completions=["late 1"])
    drawing = drawer.drawing()
    drawing.submit(asked[:4])
    given = {}
    for number, response in drawing:
        given[number] = response
        if len(given) in (1, 2):
            assert drawing.submit([asked[3 + len(given)]]) == range(3 + len(given), 4 + len(given))
        elif len(given) == 6:  # nothing was left
            drawing.submit(asked[6:])
    assert [(given[number].token_ids, given[number].token_logp) for number in range(9)] == [
        expected(one) for one in asked
    ]
    assert list(given)[5] in range(4), "the slow answer of the first four came behind those that were asked later"
    assert list(drawing) == []


@pytest.mark.parametrize("fault", [*WRONG, *BROKEN])
def test_a_wrong_answer_is_asked_again(opened, fault: str) -> None:
    running, drawer = opened
    asked, before = requests(6, seed=2), len(running.served())
    running.order(completions=[fault, "", fault])
    drawn = drawer.draw(asked)
    assert [(one.token_ids, one.token_logp) for one in drawn] == [expected(request) for request in asked]
    repeated = 2 if fault == "cut in the middle" else 0  # it had drawn the response before it was cut
    assert len(running.served()) - before == 6 + repeated


@pytest.mark.parametrize("fault", [*WRONG, "status 400", "malformed"])
def test_a_server_that_always_answers_wrongly_ends_the_run(opened, fault: str) -> None:
    running, drawer = opened
    running.order(completions=["always", fault])
    try:
        with pytest.raises(EngineFailed, match=f"no response to a request, {4} times"):
            drawer.draw(requests(2, seed=3))
    finally:
        running.order(completions=[])


def test_a_hanging_server_is_replaced_and_only_what_is_missing_is_asked(model, tmp_path: Path) -> None:
    with stage(tmp_path, transfer="files", draw_timeout=15.0) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        first = running.slots()[0]
        running.order(completions=["", "", "hang"])
        asked = requests(6)
        drawn = drawer.draw(asked)
        assert [one.token_ids for one in drawn] == [expected(request)[0] for request in asked]
        assert sorted(running.served()) == sorted(completions.stream(request) for request in asked)
        assert running.slots()[0].generation == first.generation + 1
        assert (
            "no answer within draw_timeout, 15 s" in running.said.getvalue()
            or "no answer within 15 s" in running.said.getvalue()
        )


def test_what_was_drawn_from_other_weights_is_thrown_away(model, tmp_path: Path) -> None:
    with stage(tmp_path, transfer="files") as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        running.order(weight_info=["other version"])
        asked = requests(4)
        assert [one.token_ids for one in drawer.draw(asked)] == [expected(request)[0] for request in asked]
        assert len(running.served()) == 8
        assert "fgrl-somebody-else-7 after drawing" in running.said.getvalue()


# -- early ends --------------------------------------------------------------------------------------------------------


def until(ids: list[int], tokenizer, holds) -> tuple[list[int], str]:
    """An independent reading: the shortest beginning that is complete, or an end token, or all of them."""
    for length in range(1, len(ids) + 1):
        if ids[length - 1] in (2, 3):
            return ids[:length], "end"
        if holds(ids[:length], decode(tokenizer, ids[:length])):
            return ids[:length], "early"
    return ids, "length"


@pytest.mark.parametrize("least", [0, 3])
def test_a_response_ends_behind_the_first_token_that_completes_it(opened, model, least: int) -> None:
    _running, drawer = opened
    sampling = Sampling(max_new_tokens=40, min_new_tokens=least)
    plain = requests(30, seed=5, sampling=sampling)
    for early, holds in (
        (Early(strings=("e", "th")), lambda _ids, text: "e" in text or "th" in text),
        (Early(ids=frozenset(range(100, 120))), lambda ids, _text: ids[-1] in range(100, 120)),
    ):
        drawn = drawer.draw([DrawRequest(one.prompt, sampling, one.seed, one.row, early) for one in plain])
        wanted = [until(expected(one)[0], model.tokenizer, holds) for one in plain]
        assert [(one.token_ids, one.finish) for one in drawn] == wanted
        assert sum(one.finish == "early" for one in drawn) > 3
        assert all(len(one.token_logp) == len(one.token_ids) for one in drawn)


def test_a_stream_gives_the_same_tokens_one_by_one(opened) -> None:
    _running, drawer = opened
    request = requests(1, seed=8)[0]
    given = drawer.stream(request)
    assert next(given) == expected(request)[0][0]
    assert [*given] == expected(request)[0][1:]
    abandoned = drawer.stream(request)
    next(abandoned)
    abandoned.close()
    assert drawer.draw([request])[0].token_ids == expected(request)[0]


def test_a_json_object_is_ended_by_us() -> None:
    class Tokenizer:
        def decode(self, ids, **_options: object) -> str:
            return "".join(chr(one) for one in ids)

    from fgrl.rollouts.serving.early import complete

    text = 'x {"a": 1} and more'
    request = requests(1, sampling=Sampling(max_new_tokens=50), early=Early(json_object=True))[0]
    ids = [ord(letter) for letter in text]
    drawn = completions.finished(
        ids, [-1.0] * len(ids), request, Reader({2}, 320), complete(request.early, Tokenizer()), 1, at_limit=False
    )
    assert "".join(map(chr, drawn.token_ids)) == 'x {"a": 1}'
    assert drawn.finish == "early"


# -- what is asked -------------------------------------------------------------------------------------------------------


def test_the_request_says_what_hf_does() -> None:
    reader = Reader({2, 3}, VOCABULARY)
    sampling = Sampling(max_new_tokens=9, min_new_tokens=2, temperature=0.7, top_p=0.9, top_k=5)
    early = Early(strings=("a",), ids=frozenset({7}))
    body = completions.body(DrawRequest(Prompt((1, 5)), sampling, 3, 4, early), reader, "name")
    assert (body["model"], body["prompt"], body["max_tokens"], body["min_tokens"]) == ("name", [1, 5], 9, 2)
    assert (body["temperature"], body["top_p"], body["top_k"], body["logprobs"]) == (0.7, 0.9, 5, 0)
    assert body["ignore_eos"] is True
    assert body["stop_token_ids"] == [2, 3], "7 may come before min_new_tokens, where vLLM would bar it"
    assert body["stop"] == ["a"]
    assert "stop" not in completions.body(
        DrawRequest(Prompt((1, 5)), sampling, 3, 4, early), reader, "name", own_ends=False
    )
    free = sampling.model_copy(update={"min_new_tokens": 0})
    assert completions.body(DrawRequest(Prompt((1, 5)), free, 3, 4, early), reader, "name")["stop_token_ids"] == [
        2,
        3,
        7,
    ]
    streams = {
        completions.stream(DrawRequest(Prompt((1,)), sampling, seed, row)) for seed in range(20) for row in range(20)
    }
    assert len(streams) == 400
    assert all(0 <= one < 2**63 for one in streams)


def test_what_vllm_would_change_is_refused(opened) -> None:
    _running, drawer = opened
    with pytest.raises(UsageError, match=r"temperature 0.005: vLLM samples at 0.01"):
        drawer.draw(requests(1, sampling=Sampling(max_new_tokens=2, temperature=0.005)))


def test_an_end_before_its_time_is_no_response() -> None:
    request = requests(1, sampling=SAMPLING)[0]
    with pytest.raises(BadAnswer, match="ends after 1 tokens, and min_new_tokens is 3"):
        completions.finished([9, 2], [-1.0, -1.0], request, Reader({2}, 320), None, 0, at_limit=False)
