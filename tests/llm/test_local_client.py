"""A model in this process as a client, on the tiny random model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fgrl import models, rollouts
from fgrl.base.errors import DataError, OverBudget
from fgrl.components.clients import local
from fgrl.components.clients.local import Local, encode
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.run import Run
from fgrl.feedback.llm.estimating import bill, known
from fgrl.kinds import Client
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import build
from fgrl.types import Message, Ref, Request

WORDS = ["the", "river", "runs", "past", "old", "mills", "and", "lamps", "where", "birds", "sing", "of", "bread"]


def question(text: str, **more) -> Request:
    return Request(messages=[Message(role="user", content=text)], **more)


def questions(count: int, **more) -> list[Request]:
    draw = random.Random(0)
    return [question(" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) + f" {n}", **more) for n in range(count)]


@pytest.fixture
def start(tmp_path: Path, tiny_model_dir: Path):
    """A client that is set up, in a stage and with a cache of its own unless they are named."""
    made = iter(range(100))

    def begin(stage: str | None = None, cache: str | None = None, **options) -> Local:
        number = next(made)
        client = Local(**{"model": ModelSpec(base=str(tiny_model_dir)), "max_tokens": 8, **options})
        run = Run("s", tmp_path / (stage or f"stage{number}"), cache=tmp_path / (cache or f"cache{number}"))
        client.setup(run)
        return client

    return begin


def texts(client: Client, requests: list[Request]) -> list[str]:
    found = client.complete(requests)
    assert all(one.error is None for one in found)
    return [one.text for one in found]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_does_not_depend_on_what_else_is_asked(start, temperature):
    requests = questions(12)
    alone = [text for one in requests for text in texts(start(temperature=temperature, batch_size=1), [one])]
    together = texts(start(temperature=temperature, batch_size=5), requests)
    backwards = texts(start(temperature=temperature, batch_size=7), requests[::-1])[::-1]
    assert alone == together == backwards
    assert len(set(together)) > 6


def test_samples_and_seeds_are_other_answers_and_greedy_ones_are_not(start):
    warm = [question("the lamps", sample=sample, temperature=1.0) for sample in range(6)]
    drawn = texts(start(), warm)
    assert len(set(drawn)) > 3
    assert texts(start(), warm) == drawn
    assert texts(start(seed=1), warm) != drawn
    cold = texts(start(), [question("the lamps", sample=sample) for sample in range(3)])
    assert len(set(cold)) == 1


def test_what_it_answers_is_what_the_model_says(start, tiny_model_dir):
    """Greedy answers token by token by the model's own forward; the log-probabilities are its softmax."""
    import torch

    model = models.load(ModelSpec(base=str(tiny_model_dir)))
    requests = questions(4, logprobs=5)
    for request, answer in zip(requests, start().complete(requests), strict=True):
        ids = list(encode(model.tokenizer, request).token_ids)
        written: list[int] = []
        while len(written) < 8 and not set(written) & model.eos_ids:
            logits = model.net(input_ids=torch.tensor([ids + written])).logits[0, -1]
            if not written:
                first = logits.log_softmax(0)
            written.append(int(logits.argmax()))
        assert answer.text == rollouts.decode(model.tokenizer, written)
        assert answer.finish == ("stop" if written[-1] in model.eos_ids else "length")
        assert answer.usage.model_dump() == {"prompt_tokens": len(ids), "completion_tokens": len(written), "usd": 0.0}
        likely = sorted(enumerate(first.tolist()), key=lambda pair: pair[1])[-5:]
        expected = {model.tokenizer.decode([token]): value for token, value in likely}
        assert answer.logprobs == pytest.approx(expected, abs=1e-5)


def test_only_those_get_log_probabilities_that_ask(start):
    first, second = start().complete([question("a"), question("a", logprobs=3)])
    assert first.logprobs is None
    assert 0 < len(second.logprobs) <= 3  # by text, and two tokens may read alike
    assert first.text == second.text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_verdict_of_one_token_takes_one_pass_and_is_drawn_as_any_other(start, monkeypatch, temperature):
    plain, judged = (questions(30, max_tokens=1, temperature=temperature, logprobs=count) for count in (0, 3))
    numbers = iter([*range(30), *range(30)])
    monkeypatch.setattr(local, "stream", lambda key: next(numbers))  # the key counts log-probabilities too
    drawn = texts(start(batch_size=10), plain)
    monkeypatch.setattr(rollouts, "sample", None)
    assert texts(start(batch_size=10), judged) == drawn
    assert len(set(drawn)) > 1


def test_limits_of_the_question_win_over_those_of_the_client(start):
    short, long = start(max_tokens=6).complete([question("the", max_tokens=2), question("the")])
    assert short.usage.completion_tokens <= 2
    assert long.text.startswith(short.text)
    assert long.usage.completion_tokens <= 6


def test_nothing_is_computed_twice_and_the_ledger_says_what_was(start, tmp_path):
    requests = questions(6)
    first = start(stage="one", cache="shared")
    answers = first.complete([*requests, *requests])
    assert [one.text for one in answers[:6]] == [one.text for one in answers[6:]]
    lines = [json.loads(line) for line in (tmp_path / "one" / "calls.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    assert sum(line["prompt_tokens"] for line in lines) == sum(one.usage.prompt_tokens for one in answers[:6])
    assert all(line["usd"] == 0 for line in lines)

    second = start(stage="two", cache="shared")
    again = second.complete(requests)
    assert all(one.cached for one in again)
    assert [one.text for one in again] == [one.text for one in answers[:6]]
    assert not (tmp_path / "two" / "calls.jsonl").read_text()


def test_a_limit_of_calls_stops_exactly_there_and_keeps_what_was_answered(start, tmp_path):
    requests = questions(10)
    with pytest.raises(OverBudget):
        start(stage="a", cache="shared", max_calls=7, batch_size=4).complete(requests)
    assert len((tmp_path / "a" / "calls.jsonl").read_text().splitlines()) == 7
    rest = start(stage="b", cache="shared").complete(requests)
    assert sum(one.cached for one in rest) == 7


def test_a_prompt_that_is_too_long_is_a_failure_and_nothing_is_cut(start):
    fine, long = start(max_prompt_tokens=40).complete([question("a"), question("long " * 60)])
    assert fine.error is None
    assert "max_prompt_tokens is 40" in long.error


def test_a_prompt_that_the_model_has_no_positions_for_is_a_failure_of_its_own(start):
    """The tiny model reads 2,048 tokens."""
    fine, long = start(max_prompt_tokens=10**5, max_tokens=4).complete([question("a"), question("long " * 2000)])
    assert fine.error is None
    assert long.error.endswith("max_tokens is 4, the model reads 2,048")


def test_the_key_is_the_weights_not_the_place(start, tiny_model_dir, tmp_path):
    import shutil

    copy = tmp_path / "elsewhere" / tiny_model_dir.name
    shutil.copytree(tiny_model_dir, copy)
    here, there = start(), start(model=ModelSpec(base=str(copy)))
    assert here.key(question("a")) == there.key(question("a"))
    assert here.key(question("a")) != start(temperature=0.5).key(question("a"))
    assert here.key(question("a")) == start(temperature=0.5).key(question("a", temperature=0.0))
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert start(model=ModelSpec(base=str(copy))).key(question("a")) != here.key(question("a"))


def test_all_that_changes_answers_is_in_the_key(start, tiny_model_dir):
    base = str(tiny_model_dir)
    clients = [
        start(), start(seed=1), start(top_p=0.5), start(max_tokens=9), start(temperature=0.5),
        start(model=ModelSpec(base=base, dtype="bfloat16")),
    ]  # fmt: skip
    asked = [
        question("a"),
        question("a", sample=1),
        question("b"),
        question("a", logprobs=1),
        question("a", max_tokens=1),
    ]
    keys = [client.key(request) for client in clients for request in asked]
    # a limit that the question names itself wins over the client's
    assert len(set(keys)) == len(keys) - 1
    assert start(batch_size=3, max_calls=1).key(asked[0]) == keys[0]


def test_a_model_of_another_stage(tmp_path, tiny_model_dir):
    models.save(models.load(ModelSpec(base=str(tiny_model_dir))), tmp_path / "out", about={})
    client = Local(model=ModelSpec(base=Ref("policy")), max_tokens=3)
    client.setup(Run("s", tmp_path / "stage", cache=tmp_path / "cache", products={"policy": tmp_path / "out"}))
    plain = Local(model=ModelSpec(base=str(tiny_model_dir)), max_tokens=3)
    plain.setup(Run("s", tmp_path / "other", cache=tmp_path / "cache2"))
    assert texts(client, questions(3)) == texts(plain, questions(3))
    assert client.key(question("a")) != plain.key(question("a"))


def test_an_estimate_is_what_the_ledger_says_then_and_nothing_is_written(start, tmp_path, tiny_model_dir):
    requests = [*questions(9, max_tokens=1), *questions(3, max_tokens=1)]
    client = Local(model=ModelSpec(base=str(tiny_model_dir)))
    told = bill([(client, known(client, requests, Peek(tmp_path / "shared", None, {})))])
    assert not (tmp_path / "shared").exists()
    answers = start(stage="a", cache="shared").complete(requests)
    lines = [json.loads(line) for line in (tmp_path / "a" / "calls.jsonl").read_text().splitlines()]
    assert told == {
        "calls": len(lines), "cached": 0, "prompt tokens": sum(line["prompt_tokens"] for line in lines),
        "completion tokens": sum(line["completion_tokens"] for line in lines), "usd": 0.0,
    }  # fmt: skip
    assert told["calls"] == 9
    assert len(answers) == 12
    more = bill(
        [(client, known(client, [*requests, question("new", max_tokens=1)], Peek(tmp_path / "shared", None, {})))]
    )
    assert (more["calls"], more["cached"]) == (1, 9)


def test_without_a_template_one_message_is_read_as_it_stands(tiny_model_dir):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    tokenizer.chat_template = None
    assert encode(tokenizer, question("a b")) == rollouts.encode_prompt(tokenizer, "a b")
    with pytest.raises(DataError, match="without a chat template"):
        encode(tokenizer, Request(messages=[Message(role="system", content="x"), Message(role="user", content="y")]))


def test_a_recipe_names_it(tiny_model_dir):
    built = build(Client, {"name": "local", "model": str(tiny_model_dir), "max_tokens": 3})
    assert built.price() == (0.0, 0.0)
    assert built.count_tokens(question("a")) > 1
