"""The store: what is acknowledged stays, nothing is overwritten, and a damaged or foreign file is named as such."""

from __future__ import annotations

import resource
import sqlite3
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from annotation_stores import TEXTS, new_store, samples, settings, span, without_waiting_for_the_disk
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from fgrl.base.errors import DataError, DiskError
from fgrl.pages.annotation import store as stores
from fgrl.pages.annotation.revisions import ItemState, Refused, Revision
from fgrl.pages.annotation.store import Busy, Conflict, Store, UnknownItem
from fgrl.types import Message, Response, Sample


def test_a_saved_span_is_in_a_store_that_is_opened_again(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert store.append("item-1", "ann", "span", "s1", span(), 0) == 1
        assert store.append("item-1", "ann", "span", "s1", span(note="so much"), 1) == 2
    with Store(tmp_path / "page.sqlite") as again:
        state = again.state("item-1", "ann")
        assert {id: (own.version, own.body) for id, own in state.spans.items()} == {"s1": (2, span(note="so much"))}
        assert [(own.version, own.body["note"]) for own in again.revisions()] == [(1, ""), (2, "so much")]
        assert again.state("item-1", "ben").spans == {}


def test_a_state_holds_every_kind(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.append("item-2", "ben", "answers", "1", {"overall": ["good"], "why": "short"}, 0)
    store.append("item-2", "ben", "verdict", "", {"better": None, "reason": "alike"}, 0)
    store.append("item-2", "ben", "time", "t1", {"seconds": 2.5}, 0)
    store.append("item-2", "ben", "time", "t2", {"seconds": 4.0}, 0)
    store.append("item-2", "ben", "done", "", {"done": True})
    store.append("item-2", "ann", "span", "s", span(deleted=True), 0)
    ben, ann = store.state("item-2", "ben"), store.state("item-2", "ann")
    assert ben.answers[1].body == {"overall": ["good"], "why": "short"}
    assert ben.verdict is not None
    assert ben.verdict.body == {"better": None, "reason": "alike"}
    assert (ben.seconds, ben.done, ben.order) == (6.5, True, None)
    assert (ann.seconds, ann.live_spans, list(ann.spans)) == (None, {}, ["s"])
    assert store.state("item-1", "ben") == ItemState()


def test_a_withdrawn_preference_is_none_but_keeps_its_revisions(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.append("item-1", "ann", "verdict", "", {"better": 1, "reason": "true"}, 0)
    store.append("item-1", "ann", "verdict", "", {"better": 1, "reason": "true", "deleted": True}, 1)
    state = store.state("item-1", "ann")
    assert state.verdict is None
    assert state.last_verdict is not None
    assert (state.last_verdict.version, state.last_verdict.body["deleted"]) == (2, True)
    store.append("item-1", "ann", "verdict", "", {"better": 1, "reason": "true", "deleted": False}, 2)
    again = store.state("item-1", "ann").verdict
    assert again is not None
    assert again.body == {"better": 1, "reason": "true"}


def test_two_tabs_conflict_and_the_first_one_stays(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.append("item-1", "ann", "span", "s", span(), 0)
    store.append("item-1", "ann", "span", "s", span(note="first tab"), 1)
    with pytest.raises(Conflict) as conflict:
        store.append("item-1", "ann", "span", "s", span(note="second tab"), 1)
    current = conflict.value.current
    assert current is not None
    assert (current.version, current.body["note"], current.annotator, current.item) == (2, "first tab", "ann", "item-1")
    with pytest.raises(Conflict) as nothing:
        store.append("item-1", "ann", "span", "never", span(), 3)
    assert nothing.value.current is None
    assert store.append("item-1", "ben", "span", "s", span(note="another person"), 0) == 1
    assert len(list(store.revisions())) == 3


@pytest.mark.parametrize(
    ("kind", "key", "body", "words"),
    [
        ("span", "s", span(quote="nine"), "quote"),
        ("span", "s", span(0, 8000), "8000"),
        ("span", "s", span(4, 4, quote=""), "not behind its start"),
        ("span", "s", span(place=0) | {"place": 2}, "no response 2"),
        ("span", "s", span(label=0.5), "label"),
        ("span", "s", span(start=True), "start"),
        ("span", "s", span(extra=1), "extra"),
        ("span", "../s", span(), "id"),
        ("span", "s" * 129, span(), "id"),
        ("span", "s", span(note="x" * 20_001), "note"),
        ("span", "s", span(note="\ud800"), "note: .* unicode"),
        ("answers", "2", {}, "place of a response"),
        ("answers", "01", {}, "place of a response"),
        ("answers", "0", {"why": float("nan")}, "JSON"),
        ("answers", "0", {"why": "\udfff"}, "surrogate"),
        ("verdict", "", {"better": 5, "reason": ""}, "no response 5"),
        ("verdict", "x", {"better": 0}, "no key"),
        ("order", "", {"order": [0, 0]}, "twice"),
        ("time", "t", {"seconds": -1.0}, "seconds"),
        ("time", "t", {"seconds": float("inf")}, "seconds"),
        ("done", "", {"done": "yes"}, "done"),
        ("colour", "", {}, "no kind"),
    ],
)
def test_what_does_not_fit_is_refused_and_not_stored(
    tmp_path: Path, kind: Any, key: str, body: dict[str, Any], words: str
) -> None:
    store = new_store(tmp_path)
    with pytest.raises(Refused, match=words):
        store.append("item-1", "ann", kind, key, body, 0)
    assert list(store.revisions()) == []


def test_offsets_are_code_points(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    party = TEXTS[0].index("🎉")
    assert store.append("item-1", "ann", "span", "s", span(party, party + 1, quote="🎉"), 0) == 1
    with pytest.raises(Refused, match="quote"):  # as JavaScript counts them
        store.append("item-1", "ann", "span", "u", span(party, party + 2, quote="🎉"), 0)


def test_revisions_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.append("item-1", "ann", "span", "s", span(), 0)
    other = sqlite3.connect(store.path)
    for statement in ("UPDATE revisions SET body = '{}'", "DELETE FROM revisions"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            other.execute(statement)
    other.close()
    assert len(list(store.revisions())) == 1


def test_the_settings_that_make_a_write_durable(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with store._reading() as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_samples_come_back_as_they_were_given(tmp_path: Path) -> None:
    hostile = '<script>alert(1)</script>\u202e\x00 onerror="x" \' -- ; DROP TABLE items' + "é" * 1_000_000
    given = [
        Sample(id="a/../b?c#d\x00", prompt=[Message(role="user", content=hostile)], responses=[Response(text=hostile), Response(text="")]),
        Sample(id="<b>", prompt="", responses=[Response(text="x"), Response(text=hostile)], meta={"document": [hostile]}),
    ]  # fmt: skip
    with Store.create(tmp_path / "page.sqlite", given, settings(), ["<img src=x onerror=alert(1)>"]) as store:
        assert [store.sample(item) for item in store.items] == given
        store.append(
            "<b>", "<img src=x onerror=alert(1)>", "span", "s", span(3, 900_000, place=1, texts=("x", hostile)), 0
        )
    with Store(tmp_path / "page.sqlite") as again:
        assert [again.sample(item) for item in again.items] == given
        (only,) = again.revisions()
        assert (only.item, only.annotator, only.body["quote"]) == (
            "<b>",
            "<img src=x onerror=alert(1)>",
            hostile[3:900_000],
        )


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\u202eb", "a\x00b", "x" * 101, "\ud800"])
def test_names_that_mislead_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="name"):
        new_store(tmp_path, annotators=[name])


def test_samples_that_cannot_be_shown_are_named(tmp_path: Path) -> None:
    one = [Sample(id="one", prompt="?", responses=[Response(text="x")])]
    with pytest.raises(DataError, match="one has 1 response, and the page shows two"):
        Store.create(tmp_path / "a", one, settings(), ["ann"])
    single = settings(modes={"responses": 1, "preference": False})
    with pytest.raises(DataError, match="none is chosen"):
        Store.create(tmp_path / "b", samples(1), single, ["ann"])
    with pytest.raises(DataError, match="two samples have the id"):
        Store.create(tmp_path / "c", samples(1) * 2, settings(), ["ann"])
    with pytest.raises(DataError, match="no sample"):
        Store.create(tmp_path / "d", [], settings(), ["ann"])
    chosen = [sample.model_copy(update={"chosen": 1}) for sample in samples(1)]
    assert Store.create(tmp_path / "e", chosen, single, ["ann"]).shown("item-1") == [1]


# -- opening, and what may change ------------------------------------------------------------------------------------------


def test_an_existing_store_knows_its_samples(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.check_samples(samples(3))
    with pytest.raises(DataError, match="other samples"):
        store.check_samples(samples(2))
    with pytest.raises(DataError, match="other samples"):
        store.check_samples(samples(3, ("x", "y")))


def test_settings_and_annotators_may_be_added(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    assert not store.set_settings(settings())
    assert store.set_settings(settings(title="Second round"))
    assert store.add_annotators(["ben", "cleo"]) == ["cleo"]
    with Store(store.path) as again:
        assert again.settings.title == "Second round"
        assert again.annotators == ["ann", "ben", "cleo"]
    with pytest.raises(DataError, match=r"modes\.responses: 2"):
        store.set_settings(settings(modes={"responses": 1, "preference": False}))


def test_unknown_items_and_annotators_are_named(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(UnknownItem, match="item-9"):
        store.append("item-9", "ann", "done", "", {"done": True})
    with pytest.raises(DataError, match="'zoe': ann, ben"):
        store.append("item-1", "zoe", "done", "", {"done": True})


def test_a_store_is_never_created_over_a_file(tmp_path: Path) -> None:
    new_store(tmp_path).close()
    before = (tmp_path / "page.sqlite").read_bytes()
    with pytest.raises(DataError, match="not empty"):
        new_store(tmp_path)
    assert (tmp_path / "page.sqlite").read_bytes() == before


def test_a_missing_a_foreign_a_newer_and_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such store"):
        Store(tmp_path / "none")
    foreign = tmp_path / "foreign"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    before = foreign.read_bytes()
    with pytest.raises(DataError, match="no store of annotations"):
        Store(foreign)
    assert foreign.read_bytes() == before
    text = tmp_path / "text"
    text.write_text("This is a letter.\n" * 400)
    with pytest.raises(DataError, match="no store of annotations"):
        Store(text)
    store = new_store(tmp_path)
    with store._writing() as database:
        database.execute("PRAGMA user_version = 7")
    store.close()
    with pytest.raises(DataError, match=r"newer version of fgrl \(format 7"):
        Store(store.path)


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    store = new_store(tmp_path, items=200)
    path = store.path
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"), Store(path) as broken:
        [broken.sample(item) for item in broken.items]


def test_a_locked_store_says_so_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "WAIT", 0.05)
    store = new_store(tmp_path)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match="another program"):
        store.append("item-1", "ann", "span", "s", span(), 0)
    other.execute("ROLLBACK")
    other.close()
    assert store.append("item-1", "ann", "span", "s", span(), 0) == 1


def test_a_full_disk_stores_nothing_and_what_was_stored_stays(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.append("item-1", "ann", "span", "s", span(), 0)
    with store._reading() as database:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in count():
            store.append("item-1", "ann", "span", f"s{number}", span(note="x" * 4000), 0)

    with pytest.raises(DiskError, match="full"):
        fill()
    kept = len(list(store.revisions()))
    with store._reading() as database:
        database.execute("PRAGMA max_page_count = 1000000")
    assert store.append("item-1", "ann", "span", "later", span(), 0) == 1
    store.close()
    with Store(store.path) as again:
        assert len(list(again.revisions())) == kept + 1


def test_a_file_at_its_largest_size_stores_nothing_more(tmp_path: Path) -> None:
    """The operating system refuses to write, in the middle of a transaction."""
    store = without_waiting_for_the_disk(new_store(tmp_path))
    store.append("item-1", "ann", "span", "s", span(), 0)
    acknowledged = 1

    def fill() -> None:
        nonlocal acknowledged
        while True:
            store.append("item-1", "ann", "span", f"s{acknowledged}", span(note="x" * 4000), 0)
            acknowledged += 1

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = tmp_path / "page.sqlite-wal"
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 50_000, hard))
    try:
        with pytest.raises(DiskError, match="make room"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert acknowledged > 1
    assert len(list(store.revisions())) == acknowledged
    assert store.append("item-1", "ann", "span", "later", span(), 0) == 1
    store.close()
    with Store(store.path) as again:
        assert [own.key for own in again.revisions()][-1] == "later"


def test_two_processes_write_to_one_store(tmp_path: Path) -> None:
    one = new_store(tmp_path)
    two = Store(one.path)
    assert one.append("item-1", "ann", "span", "s", span(), 0) == 1
    with pytest.raises(Conflict):
        two.append("item-1", "ann", "span", "s", span(note="other"), 0)
    assert two.append("item-1", "ann", "span", "s", span(note="other"), 1) == 2
    assert one.state("item-1", "ann").spans["s"].body["note"] == "other"


def test_a_store_that_may_not_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiskError, match="rights"):
        Store.create(tmp_path, samples(1), settings(), ["ann"])  # a folder
    new_store(tmp_path).close()
    connect = sqlite3.connect
    monkeypatch.setattr(
        stores.sqlite3, "connect", lambda address, **options: connect(address.replace("mode=rw", "mode=ro"), **options)
    )
    store = Store(tmp_path / "page.sqlite")
    with pytest.raises(DiskError, match="rights"):
        store.append("item-1", "ann", "span", "s", span(), 0)


# -- moving revisions ------------------------------------------------------------------------------------------------------


def firsts(store: Store) -> list[Revision]:
    """The newest revision of each thing, as a first one."""
    newest = {(own.item, own.annotator, own.kind, own.key): own for own in store.revisions()}
    return [own.model_copy(update={"version": 1}) for own in newest.values()]


def test_added_revisions_are_the_same_with_their_annotators(tmp_path: Path) -> None:
    store = new_store(tmp_path / "one")
    store.append("item-1", "ann", "span", "s", span(), 0)
    store.append("item-3", "ben", "verdict", "", {"better": 1, "reason": "é\x00"}, 0)
    store.append("item-1", "ann", "span", "s", span(note="x"), 1)
    empty = new_store(tmp_path / "two", annotators=[])
    assert empty.add(firsts(store)) == 2
    assert empty.add(firsts(store)) == 0
    assert store.add(firsts(store)) == 0
    assert list(empty.revisions()) == firsts(store)
    assert empty.annotators == ["ann", "ben"]


def test_adding_is_all_or_nothing_and_keeps_the_times_of_the_store(tmp_path: Path) -> None:
    store = new_store(tmp_path / "one")
    store.append("item-1", "ann", "time", "t", {"seconds": 5.0}, 0)
    store.append("item-1", "ann", "span", "s", span(), 0)
    timed, marked = store.revisions()
    assert store.add([timed.model_copy(update={"key": "imported", "body": {"seconds": 9.0}})]) == 0
    assert store.state("item-1", "ann").seconds == 5.0
    with pytest.raises(DataError, match="sample item-1: span s by 'ann': the store has another version of it"):
        store.add([marked.model_copy(update={"key": "new"}), marked.model_copy(update={"body": span(note="y")})])
    assert list(store.revisions()) == [timed, marked]
    empty = new_store(tmp_path / "two", annotators=[])
    with pytest.raises(DataError, match="quote"):
        empty.add([marked, timed.model_copy(update={"kind": "span", "body": span(quote="bad")})])
    assert list(empty.revisions()) == []
    assert empty.annotators == []
    assert Store(empty.path).annotators == []


def test_a_revision_has_a_time_with_an_offset() -> None:
    fields = {"item": "i", "annotator": "a", "kind": "done", "key": "", "version": 1, "body": {"done": True}}
    with pytest.raises(ValueError, match="without an offset"):
        Revision.model_validate({**fields, "time": "2026-05-01T09:30:00"})
    assert Revision.model_validate({**fields, "time": "2026-05-01T09:30:00Z"}).version == 1


# -- any order, any retry --------------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "ben"]),
        st.sampled_from(["s1", "s2"]),
        st.sampled_from(["", "a", "b"]),  # the note
        st.booleans(),  # deleted
        st.sampled_from(["newest", "stale", "future", "replay", "forced", "reopen"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(actions=ACTIONS)
@limits(max_examples=60)
def test_any_sequence_equals_a_plain_model_and_the_table_only_grows(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, str, str, bool, str, int]]
) -> None:
    store = without_waiting_for_the_disk(new_store(tmp_path_factory.mktemp("any"), items=1))
    model: dict[tuple[str, str], list[dict[str, Any]]] = {}
    sent: list[tuple[str, str, dict[str, Any], int, int]] = []  # acknowledged, with the version
    before: list[Revision] = []
    for who, id, note, deleted, how, back in actions:
        history, body = model.setdefault((who, id), []), span(note=note, deleted=deleted)
        if how == "reopen":
            store.close()
            store = without_waiting_for_the_disk(Store(store.path))
        elif how == "replay" and sent:
            name, thing, earlier, base, version = sent[back % len(sent)]
            assert store.append("item-1", name, "span", thing, earlier, base) == version
        elif how == "forced":
            version = store.append("item-1", who, "span", id, body)
            if not history or history[-1] != body:
                history.append(body)
            assert version == len(history)
        else:
            base = len(history) - (min(back, len(history)) if how == "stale" else -back if how == "future" else 0)
            fits = base == len(history) or (base < len(history) and history[base] == body)
            if fits:
                history += [body] * (base == len(history))
                assert store.append("item-1", who, "span", id, body, base) == base + 1
                sent.append((who, id, body, base, base + 1))
            else:
                with pytest.raises(Conflict) as conflict:
                    store.append("item-1", who, "span", id, body, base)
                current = conflict.value.current
                assert (current.body if current else None) == (history[-1] if history else None)
        after = list(store.revisions())
        assert after[: len(before)] == before
        before = after
    stored: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for revision in store.revisions():
        stored.setdefault((revision.annotator, revision.key), []).append(revision.body)
    assert stored == {thing: history for thing, history in model.items() if history}
    for who in ("ann", "ben"):
        now = {id: own.body for id, own in store.state("item-1", who).spans.items()}
        assert now == {id: history[-1] for (name, id), history in model.items() if name == who and history}
    store.close()


def test_threads_that_save_the_same_span_agree_on_one_history(tmp_path: Path) -> None:
    store, outcomes = new_store(tmp_path), []

    def work(number: int) -> None:
        for base in range(10):
            try:
                outcomes.append(
                    (number, base, store.append("item-1", "ann", "span", "s", span(note=f"{number}"), base))
                )
            except Conflict:
                outcomes.append((number, base, None))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = [own.body["note"] for own in store.revisions()]
    assert [own.version for own in store.revisions()] == list(range(1, len(history) + 1))
    for number, base, version in outcomes:
        assert version is None or (version == base + 1 and history[base] == str(number))
    assert len(outcomes) == 40


def test_what_is_added_while_revisions_are_read_is_left_out(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for number in range(7):
        store.append("item-1", "ann", "span", f"s{number}", span(), 0)
    reading = store.revisions()
    seen = [next(reading).key]
    store.append("item-1", "ann", "span", "late", span(), 0)
    seen += [own.key for own in reading]
    assert seen == [f"s{number}" for number in range(7)]
    assert len(list(store.revisions(item="item-2"))) == 0
    assert len(list(store.revisions(annotator="ann"))) == 8
