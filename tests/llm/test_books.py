"""Keys, cache, ledger and limits of clients, without an endpoint."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest
from client_helpers import request
from hypothesis import given
from hypothesis import strategies as st
from patience import HUNG

from fgrl.base.errors import DataError
from fgrl.components.clients.openai import OpenAI
from fgrl.feedback.llm import ledger
from fgrl.feedback.llm.desk import Allowance
from fgrl.feedback.llm.prices import Price
from fgrl.feedback.llm.store import CompletionStore
from fgrl.types import Completion, Message, Request, Usage

# -- keys --------------------------------------------------------------------------------------------------------------

CHANGES = {
    "model": "other",
    "base_url": "http://127.0.0.1:2/v1",
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 7,
    "seed": 3,
    "stop": ["\n"],
    "structured": "none",
    "logprobs": False,
}
UNKEYED = {
    "max_calls": 5,
    "budget_usd": 1.0,
    "prices": Price(prompt=1, completion=1),
    "api_key_env": "OTHER",
    "concurrency": 1,
    "requests_per_minute": 5.0,
    "tokens_per_minute": 5.0,
    "timeout": 1.0,
    "max_retries": 0,
    "tokenizer": "x",
    "max_tokens_name": "max_completion_tokens",
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}


def test_every_field_either_changes_the_key_or_cannot_change_answers() -> None:
    assert set(CHANGES) | set(UNKEYED) == set(OpenAI.model_fields)
    asked = request("q", json_schema=SCHEMA, logprobs=2)
    plain = OpenAI(model="m", base_url="http://127.0.0.1:1/v1")
    keys = {plain.key(asked)}
    for name, value in CHANGES.items():
        keys.add(OpenAI(**{"model": "m", "base_url": "http://127.0.0.1:1/v1", name: value}).key(asked))
    assert len(keys) == len(CHANGES) + 1
    for name, value in UNKEYED.items():
        assert OpenAI(**{"model": "m", "base_url": "http://127.0.0.1:1/v1", name: value}).key(asked) == plain.key(asked)


any_request = st.builds(
    Request,
    messages=st.lists(
        st.builds(Message, role=st.sampled_from(["user", "system"]), content=st.text(max_size=5)),
        min_size=1,
        max_size=3,
    ),
    sample=st.integers(0, 2),
    json_schema=st.none() | st.dictionaries(st.text(max_size=2), st.integers(0, 2) | st.text(max_size=2), max_size=2),
    max_tokens=st.none() | st.integers(1, 3),
    temperature=st.none() | st.sampled_from([0.0, 0.5]),
    logprobs=st.integers(0, 2),
)


@given(any_request, any_request)
def test_requests_share_a_key_exactly_when_the_same_is_sent(one: Request, other: Request) -> None:
    client = OpenAI(model="m", temperature=0.25, max_tokens=1000)
    alike = json.dumps(one.model_dump(), sort_keys=True) == json.dumps(other.model_dump(), sort_keys=True)
    assert (client.key(one) == client.key(other)) == alike


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers()), min_size=2))
def test_the_order_of_a_schema_does_not_matter(schema: dict[str, dict[str, int]]) -> None:
    turned = {name: dict(reversed(value.items())) for name, value in reversed(schema.items())}
    client = OpenAI(model="m")
    assert client.key(request("q", json_schema=schema)) == client.key(request("q", json_schema=turned))


def test_the_settings_a_request_leaves_open_are_the_clients() -> None:
    assert OpenAI(model="m", temperature=0.5).key(request("q")) == OpenAI(model="m", temperature=0.1).key(
        request("q", temperature=0.5)
    )


@pytest.mark.parametrize(
    "url", ["https://user:secret@host/v1", "https://host/v1?api-key=secret", "host/v1", "ftp://host/v1"]
)
def test_an_address_carries_no_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="wants an address"):
        OpenAI(model="m", base_url=url)


# -- cache -------------------------------------------------------------------------------------------------------------


def test_what_is_stored_comes_back_free_of_charge(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "c.sqlite")
    answer = Completion(
        text="ä", finish="stop", usage=Usage(prompt_tokens=3, completion_tokens=2, usd=0.5), logprobs={"a": -1.0}
    )
    assert store.put([("k", "{}", answer)]) == [answer]
    again = CompletionStore(tmp_path / "c.sqlite").get(["k", "other"])
    assert again == {
        "k": answer.model_copy(update={"cached": True, "usage": Usage(prompt_tokens=3, completion_tokens=2, usd=0.0)})
    }


def test_the_first_answer_stays(tmp_path: Path) -> None:
    one, two = CompletionStore(tmp_path / "c.sqlite"), CompletionStore(tmp_path / "c.sqlite")
    one.put([("k", "{}", Completion(text="first"))])
    (kept,) = two.put([("k", "{}", Completion(text="second", usage=Usage(usd=0.5)))])
    assert (kept.text, kept.usage.usd, kept.cached) == ("first", 0.5, False)


def test_thousands_of_keys_are_looked_up(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "c.sqlite")
    store.put((f"k{number}", "{}", Completion(text=str(number))) for number in range(1500))
    found = store.get([f"k{number}" for number in range(3000)])
    assert {key: value.text for key, value in found.items()} == {f"k{number}": str(number) for number in range(1500)}


def test_a_damaged_cache_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"this is no data base at all" * 100)
    with pytest.raises(DataError, match=r"c\.sqlite: .*move the file away"):
        CompletionStore(tmp_path / "c.sqlite")


def test_an_answer_that_cannot_be_read_says_which_and_what_to_do(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "c.sqlite")
    store.put([("good", "{}", Completion(text="x")), ("bad", "{}", Completion(text="y"))])
    store._database.execute("UPDATE completions SET answer = '{\"from\": \"another version\"}' WHERE key = 'bad'")
    assert store.get(["good"])["good"].text == "x"
    with pytest.raises(DataError, match=r"c\.sqlite: the answer stored under bad .*asked for again"):
        store.get(["good", "bad"])


def fill(path: Path, who: int, rows: int) -> None:
    store = CompletionStore(path)
    for number in range(rows):
        store.put(
            [
                (f"{who}-{number}", "{}", Completion(text=f"{who}")),
                (f"shared-{number}", "{}", Completion(text=f"{who}")),
            ]
        )


def test_several_processes_write_to_one_cache(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=fill, args=(tmp_path / "c.sqlite", who, 150)) for who in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(HUNG)
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = CompletionStore(tmp_path / "c.sqlite")
    keys = [f"{who}-{number}" for who in (0, 1, "shared") for number in range(150)]
    assert len(store.get(keys)) == 450


# -- ledger ------------------------------------------------------------------------------------------------------------


def add(book: ledger.Ledger, client: str, usd: float | None, at_most: float | None = None) -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=2, usd=usd)
    book.add(client, "k", "answered", usage, at_most=at_most, seconds=0.1)


def test_totals_survive_and_a_half_line_is_dropped(tmp_path: Path) -> None:
    book = ledger.Ledger(tmp_path / "calls.jsonl")
    add(book, "a", 0.5)
    add(book, "a", None, at_most=0.25)
    add(book, "b", None)
    with (tmp_path / "calls.jsonl").open("a") as file:
        file.write('{"time": 1, "client": "a", "usd"')
    again = ledger.Ledger(tmp_path / "calls.jsonl")
    assert (again.totals("a").calls, again.totals("a").usd, again.totals("a").unknown) == (2, 0.75, 0)
    assert (again.totals("b").calls, again.totals("b").unknown, again.totals("b").prompt_tokens) == (1, 1, 10)
    add(again, "a", 0.5)
    lines = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 4
    assert ledger.Ledger(tmp_path / "calls.jsonl").totals("a").usd == 1.25


@given(st.integers(0, 400))
def test_whatever_a_kill_leaves_of_the_file_is_read(cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        book = ledger.Ledger(path)
        add(book, "a", 0.5)
        add(book, "a", 0.25)
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        assert ledger.Ledger(path).totals("a").calls == whole[:cut].count(b"\n")


def test_a_line_that_the_system_writes_in_parts_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ledger.Ledger(tmp_path / "calls.jsonl")
    write = os.write
    monkeypatch.setattr(ledger.os, "write", lambda file, data: write(file, data[: len(data) // 2 or 1]))
    add(book, "a", 0.5)
    add(book, "a", 0.25)
    lines = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["usd"] for line in lines] == [0.5, 0.25]


def test_a_line_that_fits_only_in_part_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ledger.Ledger(tmp_path / "calls.jsonl")
    add(book, "a", 0.5)
    whole = (tmp_path / "calls.jsonl").read_bytes()
    write = os.write
    full_after = len(whole) + 30

    def write_until_full(file: int, data: memoryview) -> int:
        if os.fstat(file).st_size == full_after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: full_after - os.fstat(file).st_size])

    monkeypatch.setattr(ledger.os, "write", write_until_full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        add(book, "a", 0.25)
    monkeypatch.undo()
    assert (tmp_path / "calls.jsonl").read_bytes() == whole
    assert book.totals("a").usd == 0.5
    add(book, "a", 0.25)
    assert ledger.Ledger(tmp_path / "calls.jsonl").totals("a").usd == 0.75


def test_a_spoilt_line_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text("what\n")
    with pytest.raises(DataError, match=r"calls\.jsonl:1: not a line of the ledger"):
        ledger.Ledger(tmp_path / "calls.jsonl")


@pytest.mark.parametrize("usd", ["NaN", "Infinity", "-Infinity"])
def test_a_cost_that_is_no_number_is_unknown_and_does_not_block_the_budget(tmp_path: Path, usd: str) -> None:
    book = ledger.Ledger(tmp_path / "calls.jsonl")
    book.add("c", "k", "answered", Usage(usd=0.5), at_most=None, seconds=0.1)
    line = (tmp_path / "calls.jsonl").read_text(encoding="utf-8")
    (tmp_path / "calls.jsonl").write_text(line + line.replace("0.5,", f"{usd},"), encoding="utf-8")
    totals = ledger.Ledger(tmp_path / "calls.jsonl").totals("c")
    assert (totals.calls, totals.usd, totals.unknown) == (2, 0.5, 1)
    assert Allowance(totals, budget_usd=1.0).ask(0.25) == "go"


@pytest.mark.parametrize("written", ["all", "half"])
def test_an_interrupt_leaves_a_complete_line_and_no_part_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    book = ledger.Ledger(tmp_path / "calls.jsonl")
    add(book, "a", 0.5)
    write = os.write

    def interrupted(file: int, data: bytes) -> int:
        write(file, data if written == "all" else data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger.os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(book, "a", 0.25)
    monkeypatch.setattr(ledger.os, "write", write)
    add(book, "a", 1.0)
    assert ledger.Ledger(tmp_path / "calls.jsonl").totals("a").usd == (1.75 if written == "all" else 1.5)


def test_clients_of_a_stage_share_its_ledger(tmp_path: Path) -> None:
    one, two = ledger.open_at(tmp_path), ledger.open_at(tmp_path)
    assert one is two
    add(one, "a", 1.0)
    assert two.totals("a").calls == 1


# -- limits ------------------------------------------------------------------------------------------------------------


@given(
    max_calls=st.none() | st.integers(0, 12),
    budget=st.none() | st.floats(0, 2),
    costs=st.lists(st.tuples(st.floats(0, 0.5), st.sampled_from(["paid", "lost", "refused"])), max_size=30),
    width=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_no_order_of_events_exceeds_a_limit(max_calls, budget, costs, width, order) -> None:
    totals = ledger.Totals()
    allowance = Allowance(totals, max_calls, budget)
    waiting, flying = list(costs), []
    stopped = False
    while flying or (waiting and not stopped):
        assert max_calls is None or totals.calls + len(flying) <= max_calls
        assert budget is None or totals.usd + sum(at_most for at_most, _ in flying) <= budget + 1e-9
        if waiting and not stopped and len(flying) < width and order.random() < 0.7:
            verdict = allowance.ask(waiting[0][0])
            assert not (verdict == "wait" and not flying)
            if verdict == "go":
                flying.append(waiting.pop(0))
            stopped = verdict == "stop"
            if verdict != "wait":
                continue
        if flying:
            at_most, end = flying.pop(order.randrange(len(flying)))
            if end != "refused":
                usd = at_most * order.random() if end == "paid" else None
                totals.add({"prompt_tokens": 0, "completion_tokens": 0, "usd": usd, "at_most": at_most})
            allowance.settle(at_most)
    assert max_calls is None or totals.calls <= max_calls
    assert budget is None or totals.usd <= budget + 1e-9
    assert allowance.flying == 0
    if stopped:
        assert max_calls == totals.calls or (budget is not None and totals.usd + waiting[0][0] > budget)


def test_an_unknown_price_never_fits_a_budget() -> None:
    assert Allowance(ledger.Totals(), budget_usd=100.0).ask(None) == "stop"
    assert Allowance(ledger.Totals()).ask(None) == "go"
