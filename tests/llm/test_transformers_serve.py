"""The `openai` client and a judge against a real OpenAI-compatible server: `transformers serve` with SmolLM2 on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import HUNG

from fgrl.base.errors import OverBudget
from fgrl.components.annotators.preference import Preference
from fgrl.components.clients.local import Local
from fgrl.components.clients.openai import OpenAI
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.run import Run
from fgrl.feedback.llm.asking import Question, ask, tally
from fgrl.feedback.llm.estimating import bill, known
from fgrl.feedback.llm.prices import Price
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Message, Request, Response, Sample

pytestmark = pytest.mark.smollm2
"""Seconds for the server to start on a busy machine."""
CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo", "Spain": "Madrid"}


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that serves one model, named by its folder."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        pytest.skip("needs fastapi and uvicorn: pip install -c constraints.txt fastapi uvicorn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    log = tmp_path_factory.mktemp("serve") / "log.txt"
    with log.open("w") as file:
        process = subprocess.Popen(
            [program, "serve", smollm2_dir, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
            env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + HUNG
        while not healthy(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def client(server: str, smollm2_dir: Path, tmp_path: Path):
    """A client of the server, set up in a stage of its own; the cache is shared."""

    def begin(stage: str, **options) -> OpenAI:
        made = OpenAI(
            **{"model": str(smollm2_dir), "base_url": server, "api_key_env": None, "max_tokens": 12, "concurrency": 4,
               "tokenizer": str(smollm2_dir), "prices": Price(prompt=1.0, completion=2.0), **options}
        )  # fmt: skip
        made.setup(Run(stage, tmp_path / stage, cache=tmp_path / "cache"))
        return made

    return begin


def requests() -> list[Request]:
    return [
        Request(
            messages=[Message(role="user", content=f"What is the capital of {country}? Answer with its name alone.")]
        )
        for country in CAPITALS
    ]


def test_questions_are_answered_counted_and_never_paid_twice(client, smollm2_dir, tmp_path):
    first = client("first")
    told = bill([(first, known(first, requests(), Peek(tmp_path / "cache", None, {})))])
    answers = first.complete(requests())
    assert [one.error for one in answers] == [None] * len(CAPITALS)
    hits = sum(capital in one.text for capital, one in zip(CAPITALS.values(), answers, strict=True))
    assert hits >= 3, [one.text for one in answers]

    # the server counts the prompt's tokens as our own tokenizer does, and nothing is longer than was asked for
    exact = Local(model=ModelSpec(base=str(smollm2_dir)))
    assert [one.usage.prompt_tokens for one in answers] == [exact.count_tokens(one) for one in requests()]
    assert all(0 < one.usage.completion_tokens <= 12 for one in answers)
    paid = sum(one.usage.prompt_tokens * 1e-6 + one.usage.completion_tokens * 2e-6 for one in answers)
    assert sum(one.usage.usd for one in answers) == pytest.approx(paid)
    assert first.counts()["usd"] == pytest.approx(paid, abs=1e-6)
    assert (told["calls"], told["cached"]) == (5, 0)
    assert told["prompt tokens"] == sum(one.usage.prompt_tokens for one in answers)
    assert told["usd"] >= paid

    second = client("second")
    again = second.complete(requests())
    assert all(one.cached for one in again)
    assert [one.text for one in again] == [one.text for one in answers]
    assert second.counts()["calls"] == 0
    assert bill([(second, known(second, requests(), Peek(tmp_path / "cache", None, {})))])["calls"] == 0


def test_the_limit_of_calls_holds_and_the_rest_is_asked_later(client):
    with pytest.raises(OverBudget):
        client("limited", max_calls=2).complete(requests())
    rest = client("rest")
    assert sum(one.cached for one in rest.complete(requests())) == 2
    assert rest.counts()["calls"] == 3


def test_a_question_is_put_again_with_the_reason(client):
    def two_words(text: str) -> str:
        raise ValueError("it has to be two words")

    judge = client("again", max_tokens=4)
    question = Question(requests()[0], two_words, allow_truncated=True)
    asked = ask(judge, [question], tries=2)
    assert tally(asked) == {
        "questions": 1, "answered": 0, "cached": 0, "asked again": 1, "repaired": 0, "failed": 1, "failed: unreadable": 1,
    }  # fmt: skip
    assert judge.counts()["calls"] == 2
    (first,) = judge.complete([question.request])
    assert first.cached
    assert asked[0].completion.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_server_without_log_probabilities_leaves_verdicts_missing_and_says_so(client):
    prompt = Path(__file__).resolve().parents[2] / "prompts" / "rlaif_judge.txt"
    annotator = Preference(client=client("judge"), prompt=str(prompt), verdict="logprobs")
    sample = Sample(id="s", prompt="What is a lamp?", responses=[Response(text="A light."), Response(text="A fish.")])
    (annotated,) = annotator.annotate([sample])
    assert [verdict.verdict for verdict in annotated.verdicts] == [None]
    assert annotator.counts()["without log-probabilities of 1 and 2"] == 2
    assert annotator.counts()["calls"] == 2
