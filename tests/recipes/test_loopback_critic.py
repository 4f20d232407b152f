"""The critic of the small recipes: what it thinks of texts and programs, and the endpoint through which it is asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import script_files
from scratch_registry import scratch
from tiny_recipe import a_run

from fgrl.experiments.recipe import load
from fgrl.feedback.critic import shown
from fgrl.feedback.templates import read_prompt
from fgrl.registry import Problems, build
from fgrl.registry.names import _components
from fgrl.types import Message, Request, Response, Sample

ROOT = Path(__file__).resolve().parents[2]
PROMPT = ROOT / "prompts" / "critique_by_request.txt"
critic = script_files.imported(ROOT / "recipes" / "small" / "loopback_critic.py")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Other tests of the same process load recipes that import the file, and forget it."""
    with scratch():
        _components["client"]["loopback_critic"] = critic.LoopbackCritic
        yield


CODE = "def is_alive(self):\n    self._check_closed()\n    return self._popen.poll() is None"
REQUEST = f"Summarize this Python function in one short sentence.\n\n{CODE}"


def of(text: str, min_words: int = 4) -> dict[str, list[str]]:
    quotes = critic.of_text(REQUEST, text, min_words).quotes
    return {label: quotes.get(label, []) for label in ("good_spans", "poor_spans")}


@pytest.mark.parametrize(
    ("text", "good", "poor"),
    [
        ("Check whether the closed popen is alive.", ["Check whether the closed", "popen is alive"], []),
        ("Returns True when it polls the closed parents.", ["polls the closed"], ["parents"]),
        ("Return whether the process is alive.", ["alive"], []),  # a general word costs nothing
        ("This Python function returns None.", [], []),  # nor do words of instructions and keywords
        ("Return the banana of the popen.", ["popen"], ["banana"]),
        ("Check the popen of the popen.", ["Check the popen"], ["of the popen"]),
        ("Check that it is alive. It is a nice popen.", ["Check", "alive"], ["It is a nice", "popen"]),
        ("Return alive.", [], ["Return alive."]),
        ("", [], []),
        ("  \n", [], []),
    ],
)
def test_what_it_thinks_of_a_summary(text: str, good: list[str], poor: list[str]) -> None:
    assert of(text) == {"good_spans": good, "poor_spans": poor}


QUESTION = """Search results:
[1] cathedral: the principal church of a bishop
[2] church: a place for public worship

Question: What is "cathedral", in ten words or fewer?"""


@pytest.mark.parametrize(
    ("text", "good", "poor"),
    [
        ("A cathedral is the principal church of a bishop.", ["principal church", "bishop"], []),
        ("In ten words or fewer, a cathedral is a nice church of a bishop.", ["church of a bishop"], ["nice"]),
        ("Cathedral, in ten words or fewer.", [], ["Cathedral, in ten words or fewer."]),
        ("A cathedral is: ten words or fewer cathedral.", [], ["A cathedral is: ten words or fewer cathedral."]),
    ],
)
def test_words_of_the_question_earn_nothing(text: str, good: list[str], poor: list[str]) -> None:
    """A policy that repeats the question learned that from a critic which called its words supported."""
    assert critic.of_text(QUESTION, text, 4).quotes == {"good_spans": good, "poor_spans": poor}


def test_the_critique_names_the_phrases_that_it_quotes() -> None:
    critique = critic.of_text(REQUEST, "Return the banana of the popen, banana.", 4)
    assert critique.text == "Right: popen. Wrong: banana (unsupported), popen, banana (repeated)."
    assert critic.of_text(REQUEST, "Return what it is now.", 4).text == "Right: nothing. Wrong: now (unsupported)."
    assert critic.of_text(REQUEST, "Return whether it is so.", 4).text == "Right: nothing. Wrong: nothing."
    assert critic.of_text(REQUEST, "Alive.", 4).text == "Right: nothing. Wrong: it is too short."


def test_a_quote_s_first_occurrence_is_the_one_that_is_meant() -> None:
    """An annotation takes the first place where a quote occurs: a repeated word must not be marked where it came first."""
    text = "Check the popen, then the popen, then the popen, then the popen, then the popen."
    quotes = of(text)
    assert quotes["good_spans"][0] == "Check the popen"
    starts = [text.find(quote) for quote in quotes["poor_spans"]]
    assert starts
    assert min(starts) > text.find("popen")


def test_a_longer_true_summary_is_worth_more_than_a_short_one_and_silence_than_nothing() -> None:
    """The best answer must not be an empty one."""

    def worth(text: str) -> int:
        quotes = of(text)
        return sum(len(quote.split()) for quote in quotes["good_spans"]) - sum(
            len(quote.split()) for quote in quotes["poor_spans"]
        )

    long, short = "Check whether the closed popen is alive.", "Check whether it is so."
    assert worth(long) > worth(short) > worth("") == 0 > worth("Return alive.")


@pytest.mark.parametrize(
    ("program", "passed", "report", "wrong", "improvable"),
    [
        ("def f(x):\n    return x", True, "", [], []),
        ("def f(x):\n    print(x)\n    return x", True, "", [], ["print(x)"]),
        ("def f(x):\n    y = x\n    return y", False, "AssertionError: f(1) == 2", ["return y"], []),
        ("def f(x):\n    y = 1 / x\n    return y", False,
         "  line 2, in f\n    y = 1 / x\nZeroDivisionError: division by zero", ["y = 1 / x"], []),
        ("def f(x):\n    pass", False, "AssertionError", ["pass"], []),
        ("```python\n# double it\nimport math\ndef f(x):\n```", False, "SyntaxError",
         ["```python", "# double it", "import math", "def f(x):"], []),
        ("```python", False, "NameError", ["```python"], []),
    ],
)  # fmt: skip
def test_what_it_thinks_of_a_program(
    program: str, passed: bool, report: str, wrong: list[str], improvable: list[str]
) -> None:
    critique = critic.of_program(program, passed, report)
    assert critique.quotes == {"wrong_code": wrong, "improvement_code": improvable}
    assert all(line in program for quotes in critique.quotes.values() for line in quotes)


def test_it_reads_the_outcome_of_tests_as_prompts_show_it() -> None:
    path = ROOT / "prompts" / "critique_code.txt"
    client, template = a_client(about="program", prompt=str(path)), read_prompt(path, critic.PLACEHOLDERS)
    sample = Sample(id="0", prompt="Double it.", meta={"tests": "assert f(1) == 2"})

    def asked(tests: dict[str, Any]) -> Any:
        response = Response(text="def f(x):\n    y = x\n    return y", meta={"tests": tests})
        messages = [message.model_dump() for message in template.fill(shown(sample, response))]
        return json.loads(client.answer(template, {"messages": messages}))

    assert asked({"passed": True, "detail": ""})["wrong_code"] == []
    assert asked({"passed": False, "detail": "    y = x\nNameError: no x"}) == {
        "code_feedback": "The tests fail: NameError: no x", "wrong_code": ["y = x"], "improvement_code": []
    }  # fmt: skip
    with pytest.raises(ValueError, match="whether the program passed"):
        asked({"passed": None, "detail": "the sandbox is gone"})


# -- the endpoint --------------------------------------------------------------------------------------------------------


def a_client(**settings: Any) -> Any:
    return build(critic.LoopbackCritic, {"name": "loopback_critic", "prompt": str(PROMPT), **settings})


def a_request(summary: str) -> Request:
    template = read_prompt(PROMPT, critic.PLACEHOLDERS)
    values = {"prompt": REQUEST, "response": summary}
    return Request(messages=template.fill(values), json_schema={"type": "object"})


SUMMARIES = [f"Return whether process number {number} is alive." for number in range(40)]


def test_it_is_asked_as_an_endpoint_is(tmp_path: Path) -> None:
    """40 requests over HTTP: answers, ledger and cache; a second client asks nothing."""
    client = a_client()
    client.setup(a_run(tmp_path / "first"))
    answers = client.complete([a_request(summary) for summary in SUMMARIES])
    assert all(answer.error is None for answer in answers)
    assert json.loads(answers[7].text) == {
        "textual_feedback": "Right: alive. Wrong: 7 (unsupported).",
        "good_spans": ["alive"],
        "poor_spans": ["7"],
    }
    assert {name: client.counts()[name] for name in ("calls", "cached", "usd")} == {"calls": 40, "cached": 0, "usd": 0}
    again = a_client()
    again.setup(a_run(tmp_path / "again"))
    assert [answer.text for answer in again.complete([a_request(summary) for summary in SUMMARIES])] == [
        answer.text for answer in answers
    ]
    assert (again.counts()["calls"], again.counts()["cached"]) == (0, 40)


def test_nothing_listens_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    with critic.endpoint(lambda body: "{}") as address:
        port = int(address.split(":")[2].partition("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with pytest.raises(RuntimeError, match="something else"), critic.endpoint(lambda body: "{}"):
        raise RuntimeError("something else")
    assert set(threading.enumerate()) == before


def test_the_port_is_in_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = []
    real = critic.LoopbackCritic.endpoint
    monkeypatch.setattr(
        critic.LoopbackCritic, "endpoint", lambda self, address: addresses.append(address) or real(self, address)
    )
    client, request = a_client(), a_request("Return whether it is alive.")
    before = client.key(request)
    client.setup(a_run(tmp_path / "first"))
    client.complete([request])
    port = addresses[-1].partition("127.0.0.1:")[2].partition("/")[0]
    assert int(port) > 0
    assert client.key(request) == before
    assert port not in client.question(request)


def test_what_can_change_the_answer_is_in_the_key(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(PROMPT.read_text(encoding="utf-8") + "\nBe short.", encoding="utf-8")
    keys = {
        a_client(**settings).key(a_request("Return it."))
        for settings in ({}, {"min_words": 2}, {"about": "program"}, {"prompt": str(other)})
    }
    assert len(keys) == 4


def test_a_request_of_another_prompt_file_fails_and_says_why(tmp_path: Path) -> None:
    client = a_client(max_retries=0)
    client.setup(a_run(tmp_path / "first"))
    (answer,) = client.complete([Request(messages=[Message(role="user", content="Hello?")])])
    assert "the request was not made of critique_by_request.txt" in (answer.error or "")


@pytest.mark.parametrize("name", ["text2grad_summarize", "text2grad_qa"])
def test_the_labels_follow_from_what_the_trained_critic_sees(name: str) -> None:
    """No reference: what the model that learns the critiques does not see, it cannot learn."""
    recipe = load(ROOT / "recipes" / "small" / f"{name}.yaml")
    annotator, learned = recipe.stages["annotations"].annotator, recipe.stages["reward_model"].data
    assert shown_in(annotator.prompt) == shown_in(annotator.client.prompt) == shown_in(learned.prompt)


def shown_in(path: str) -> set[str]:
    """Placeholders of a prompt file."""
    return {name for name in critic.PLACEHOLDERS if f"{{{name}}}" in Path(path).read_text(encoding="utf-8")}


def test_the_schema_decides_which_keys_are_answered() -> None:
    schema = {"properties": {"good_spans": {}, "poor_spans": {}}}
    body = {
        "messages": [message.model_dump() for message in a_request("Return the banana now.").messages],
        "response_format": {"json_schema": {"schema": schema}},
    }
    answer = a_client().answer(read_prompt(PROMPT, critic.PLACEHOLDERS), body)
    assert json.loads(answer) == {"good_spans": [], "poor_spans": ["banana now"]}


def test_an_address_is_refused() -> None:
    with pytest.raises(Problems, match="leave base_url out"):
        a_client(base_url="http://127.0.0.1:8000/v1")


# -- the pairs -----------------------------------------------------------------------------------------------------------

ROWS = [json.loads(line) for line in (ROOT / "recipes" / "small" / "docstrings.jsonl").read_text().splitlines()]
HELD_OUT = 160


def test_the_pairs_are_what_the_tool_promises() -> None:
    assert len(ROWS) == 1557
    assert len({row["id"] for row in ROWS}) == len({row["code"] for row in ROWS}) == len(ROWS)
    assert all(list(row) == ["id", "code", "summary"] for row in ROWS)
    assert all(4 <= len(row["summary"].split()) <= 16 and len(row["code"]) <= 300 for row in ROWS)
    assert not [row["id"] for row in ROWS if row["summary"] in row["code"]]
    packages = [{row["id"].partition(".")[0] for row in part} for part in (ROWS[:-HELD_OUT], ROWS[-HELD_OUT:])]
    assert packages[0].isdisjoint(packages[1])
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (ROOT / "recipes" / "small" / "PYTHON-LICENSE.txt").read_text()


def test_no_held_out_pair_is_almost_in_the_training_part() -> None:
    summaries = [frozenset(critic.vocabulary(row["summary"])) for row in ROWS]
    trained = set(summaries[:-HELD_OUT])
    assert trained.isdisjoint(summaries[-HELD_OUT:])


def test_people_s_summaries_are_better_for_their_own_function_than_for_another() -> None:
    """The critic's scale: its opinion of each summary for its own function and for the next one."""

    def share_good(shift: int) -> float:
        good = poor = 0
        for row, other in zip(ROWS, ROWS[shift:] + ROWS[:shift], strict=True):
            quotes = critic.of_text(row["code"], other["summary"], 4).quotes
            good += len(quotes["good_spans"])
            poor += len(quotes["poor_spans"])
        return good / (good + poor)

    assert share_good(0) > 0.45
    assert share_good(1) < 0.15
