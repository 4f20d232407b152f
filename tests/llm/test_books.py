"""Keys, cache, ledger and limits of clients, without an endpoint."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from client_helpers import a_run, request
from hypothesis import given
from hypothesis import strategies as st
from patience import HUNG

from fgrl.base.errors import DataError
from fgrl.components.clients.openai import OpenAI
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.ledger import Account, Ledger
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
    assert store.put("k", "{}", answer) == answer
    again = CompletionStore(tmp_path / "c.sqlite").get(["k", "other"])
    assert again == {
        "k": answer.model_copy(update={"cached": True, "usage": Usage(prompt_tokens=3, completion_tokens=2, usd=0.0)})
    }


def test_the_first_answer_stays(tmp_path: Path) -> None:
    one, two = CompletionStore(tmp_path / "c.sqlite"), CompletionStore(tmp_path / "c.sqlite")
    one.put("k", "{}", Completion(text="first"))
    kept = two.put("k", "{}", Completion(text="second", usage=Usage(usd=0.5)))
    assert (kept.text, kept.usage.usd, kept.cached) == ("first", 0.5, False)


def test_thousands_of_keys_are_looked_up(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "c.sqlite")
    for number in range(1500):
        store.put(f"k{number}", "{}", Completion(text=str(number)))
    found = store.get([f"k{number}" for number in range(3000)])
    assert {key: value.text for key, value in found.items()} == {f"k{number}": str(number) for number in range(1500)}


def test_a_damaged_cache_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"this is no data base at all" * 100)
    with pytest.raises(DataError, match=r"c\.sqlite: .*move the file away"):
        CompletionStore(tmp_path / "c.sqlite")


def test_an_answer_that_cannot_be_read_says_which_and_what_to_do(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "c.sqlite")
    store.put("good", "{}", Completion(text="x"))
    store.put("bad", "{}", Completion(text="y"))
    store._database.execute("UPDATE completions SET answer = '{\"from\": \"another version\"}' WHERE key = 'bad'")
    assert store.get(["good"])["good"].text == "x"
    with pytest.raises(DataError, match=r"c\.sqlite: the answer stored under bad .*asked for again"):
        store.get(["good", "bad"])


def fill(path: Path, who: int, rows: int) -> None:
    store = CompletionStore(path)
    for number in range(rows):
        store.put(f"{who}-{number}", "{}", Completion(text=f"{who}"))
        store.put(f"shared-{number}", "{}", Completion(text=f"{who}"))


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


def add(book: Ledger, client: str, usd: float | None, at_most: float | None = None) -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=2, usd=usd)
    book.account(client).charge("k", "answered", usage, at_most=at_most, seconds=0.1)


def test_totals_survive_and_a_half_line_is_dropped(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    add(book, "a", 0.5)
    add(book, "a", None, at_most=0.25)
    add(book, "b", None)
    with (tmp_path / "calls.jsonl").open("a") as file:
        file.write('{"time": 1, "client": "a", "usd"')
    again = Ledger(tmp_path)
    assert (again.account("a").calls, again.account("a").usd, again.account("a").unknown) == (2, 0.75, 0)
    assert (again.account("b").calls, again.account("b").unknown, again.account("b").prompt_tokens) == (1, 1, 10)
    add(again, "a", 0.5)
    lines = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 4
    assert Ledger(tmp_path).account("a").usd == 1.25


@given(st.integers(0, 400))
def test_whatever_a_kill_leaves_of_the_file_is_read(cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        book = Ledger(path.parent)
        add(book, "a", 0.5)
        add(book, "a", 0.25)
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        assert Ledger(path.parent).account("a").calls == whole[:cut].count(b"\n")


def test_a_line_that_fits_only_in_part_is_removed(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    add(book, "a", 0.5)
    whole = (tmp_path / "calls.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 30, limits[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            add(book, "a", 0.25)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "calls.jsonl").read_bytes() == whole
    assert book.account("a").usd == 0.5
    add(book, "a", 0.25)
    assert Ledger(tmp_path).account("a").usd == 0.75


@pytest.mark.parametrize("written", ["all", "half"])
def test_an_interrupt_leaves_a_complete_line_and_no_part_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    class Interrupted(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data if written == "all" else data[: len(data) // 2])
            raise KeyboardInterrupt

    book = Ledger(tmp_path)
    add(book, "a", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, mode, **more: Interrupted(path, "ab"))
        with pytest.raises(KeyboardInterrupt):
            add(book, "a", 0.25)
    add(book, "a", 1.0)
    assert Ledger(tmp_path).account("a").usd == (1.75 if written == "all" else 1.5)


def test_a_spoilt_line_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text("what\n")
    with pytest.raises(DataError, match=r"calls\.jsonl:1: not a line of the ledger"):
        Ledger(tmp_path)


@pytest.mark.parametrize("usd", ["NaN", "Infinity", "-Infinity"])
def test_a_cost_that_is_no_number_is_unknown_and_does_not_block_the_budget(tmp_path: Path, usd: str) -> None:
    add(Ledger(tmp_path), "c", 0.5)
    line = (tmp_path / "calls.jsonl").read_text(encoding="utf-8")
    (tmp_path / "calls.jsonl").write_text(line + line.replace("0.5,", f"{usd},"), encoding="utf-8")
    account = Ledger(tmp_path).account("c")
    assert (account.calls, account.usd, account.unknown) == (2, 0.5, 1)
    assert a_desk(account, budget_usd=1.0).may_start()


def test_clients_of_a_stage_share_its_ledger(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    clients = [OpenAI(model="m", api_key_env=None) for _ in range(2)]
    for client in clients:
        client.setup(run)
    assert clients[0]._account is clients[1]._account is not None
    run.close()


# -- limits ------------------------------------------------------------------------------------------------------------


def a_call(tokens: int = 5) -> Call:
    return Call("k", "{}", request("q"), tokens)


def a_desk(
    account: Account, max_calls: int | None = None, budget_usd: float | None = None, price: float = 100_000
) -> Desk:
    """An answer costs 0.1 USD a token, unless there is another `price` of a million of them."""
    nobody: Any = None
    tariff = Price(prompt=0, completion=price)
    return Desk(nobody, account, nobody, tariff, max_calls, budget_usd, [], 0, nobody)


@given(
    max_calls=st.none() | st.integers(0, 12),
    budget=st.none() | st.floats(0, 2),
    costs=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["paid", "lost", "refused"])), max_size=30),
    width=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_no_order_of_events_exceeds_a_limit_by_more_than_what_is_in_flight(
    max_calls, budget, costs, width, order
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        account = Ledger(Path(folder)).account("c")
        desk = a_desk(account, max_calls, budget)
        waiting, flying = list(costs), []
        while flying or (waiting and not desk.closing):
            assert max_calls is None or account.calls + len(flying) <= max_calls
            if waiting and not desk.closing and len(flying) < width and order.random() < 0.7:
                spent = account.usd
                if desk.may_start():
                    assert budget is None or spent < budget or waiting[0][0] == 0
                    flying.append(waiting.pop(0))
                continue
            if flying:
                tokens, end = flying.pop(order.randrange(len(flying)))
                if end == "refused":
                    desk.refuse()
                else:
                    usage = Usage(usd=tokens * 0.1 * order.random() if end == "paid" else None)
                    desk.charge(a_call(tokens), "answered", usage, 0.1)
        assert max_calls is None or account.calls <= max_calls
        assert budget is None or account.usd <= budget + width * 0.5
        assert desk.account.flying == 0


def test_what_is_free_needs_no_budget(tmp_path: Path) -> None:
    assert a_desk(Ledger(tmp_path).account("c"), budget_usd=0.0, price=0).may_start()
    assert not a_desk(Ledger(tmp_path).account("c"), budget_usd=0.0).may_start()
