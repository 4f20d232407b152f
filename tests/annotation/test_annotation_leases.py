"""Who is offered which item: overlap, expiry, order of the responses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from annotation_stores import new_store, span, without_waiting_for_the_disk
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from fgrl.pages.annotation.leases import LEASE_SECONDS, Progress
from fgrl.pages.annotation.store import NotGiven, Store


class Clock:
    """Seconds that a test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def finish(store: Store, item: str, annotator: str) -> None:
    store.save(item, annotator, "done", "", {"done": True})


def test_two_annotators_are_never_offered_the_same_item(tmp_path: Path) -> None:
    store = new_store(tmp_path, items=4)
    assert [store.offer("ann"), store.offer("ben"), store.offer("ann", "item-1"), store.offer("ben", "item-2")] == [
        "item-1", "item-2", "item-3", "item-4",
    ]  # fmt: skip
    assert store.offer("ann", "item-3") == "item-1"
    finish(store, "item-1", "ann")
    finish(store, "item-3", "ann")
    assert store.offer("ann") is None
    assert store.progress("ann") == Progress(done=2, started=0, remaining=0, total=2)
    assert store.progress("ben") == Progress(done=0, started=0, remaining=2, total=2)


def test_common_items_go_to_everybody_and_the_rest_to_one(tmp_path: Path) -> None:
    names = ["ann", "ben", "cleo", "dan"]
    store = new_store(tmp_path, items=20, annotators=names, overlap=6, seed=3)
    given: Counter[str] = Counter()
    working = dict.fromkeys(names, True)
    while any(working.values()):
        for name in names:
            if working[name]:
                item = store.offer(name)
                working[name] = item is not None
                if item is not None:
                    finish(store, item, name)
                    given[item] += 1
    assert sorted(given.values()) == [1] * 14 + [4] * 6
    assert sum(store.progress(name).done for name in names) == 14 + 4 * 6
    common = {item for item, times in given.items() if times == 4}
    assert common != set(store.items[:6]), "drawn, not the first ones of the file"
    assert store.add_annotators(["eve"]) == ["eve"]
    assert store.progress("eve") == Progress(0, 0, 6, 6)


def test_each_item_goes_to_as_many_as_it_wants(tmp_path: Path) -> None:
    store = new_store(tmp_path, items=1, annotators=["ann", "ben", "cleo"], each=2)
    assert [store.offer(name) for name in ("ann", "ben", "cleo")] == ["item-1", "item-1", None]
    store.release("item-1", "ann")
    assert store.offer("cleo") == "item-1"


def test_a_lease_expires_and_work_makes_it_longer(tmp_path: Path) -> None:
    clock = Clock()
    store = new_store(tmp_path, items=1, clock=clock)
    assert store.offer("ann") == "item-1"
    clock.now += LEASE_SECONDS - 1
    store.save("item-1", "ann", "span", "s", span(), 0)
    clock.now += LEASE_SECONDS - 1
    assert store.offer("ben") is None
    clock.now += 2
    assert store.offer("ben") == "item-1"


def test_whoever_comes_back_late_can_still_save_but_does_not_take_the_item_away(tmp_path: Path) -> None:
    clock = Clock()
    store = new_store(tmp_path, items=1, clock=clock)
    store.offer("ann")
    store.save("item-1", "ann", "span", "s", span(), 0)
    clock.now += LEASE_SECONDS + 1
    assert store.offer("ben") == "item-1"
    assert store.save("item-1", "ann", "span", "s", span(note="written without a connection"), 1) == 2
    assert [listed.leased for _item, listed in store.listing("ann")] == [False]
    assert [listed.leased for _item, listed in store.listing("ben")] == [True]
    assert store.open("item-1", "ann").spans["s"].version == 2


def test_an_annotator_holds_few_items_at_a_time(tmp_path: Path) -> None:
    with new_store(tmp_path, 40) as store:
        opened = [f"item-{number}" for number in range(1, 40)]
        for item in opened:
            store.open(item, "ann")
        assert [item for item, listed in store.listing("ann") if listed.leased] == opened[-3:]
        assert store.offer("ben") == "item-1"
        store.save("item-1", "ann", "span", "s1", span())  # what was begun can be saved for ever
        store.save("item-20", "ann", "span", "s1", span())
        assert [item for item, listed in store.listing("ann") if listed.leased] == ["item-20", "item-38", "item-39"]
        store.leases_each = 1
        assert store.offer("ann") == "item-20"
        assert [item for item, listed in store.listing("ann") if listed.leased] == ["item-20"]


def test_nobody_opens_or_writes_what_another_one_has(tmp_path: Path) -> None:
    store = new_store(tmp_path, items=2)
    store.offer("ann")
    with pytest.raises(NotGiven):
        store.open("item-1", "ben")
    with pytest.raises(NotGiven):
        store.save("item-1", "ben", "span", "s", span(), 0)
    with pytest.raises(NotGiven):
        store.save("item-2", "ben", "span", "s", span(), 0)
    assert store.open("item-2", "ben").order is not None
    assert {own.kind for own in store.revisions()} == {"order"}


def test_what_was_begun_is_offered_first_and_the_list_shows_states(tmp_path: Path) -> None:
    store = new_store(tmp_path, items=4, annotators=["ann"])
    for item in store.items[:3]:
        store.open(item, "ann")
    store.save("item-2", "ann", "verdict", "", {"better": 0, "reason": "x"}, 0)
    store.save("item-3", "ann", "done", "", {"done": True})
    assert [(item, listed.state, listed.leased) for item, listed in store.listing("ann")] == [
        ("item-1", "new", True), ("item-2", "started", True), ("item-3", "done", False),
    ]  # fmt: skip
    assert store.offer("ann") == "item-2"
    store.release("item-1", "ann")
    assert [item for item, _listed in store.listing("ann")] == ["item-2", "item-3"]
    assert store.progress("ann") == Progress(done=1, started=1, remaining=3, total=4)
    store.save("item-3", "ann", "done", "", {"done": False})
    assert store.progress("ann") == Progress(done=0, started=1, remaining=4, total=4)
    assert store.offer("ann", "item-3") == "item-4"


def test_the_order_of_responses_is_drawn_once_per_annotator_and_stored(tmp_path: Path) -> None:
    store = new_store(tmp_path / "one", items=40, overlap=40, seed=5)
    orders = {name: [store.open(item, name).order for item in store.items] for name in ("ann", "ben")}
    assert orders["ann"] != orders["ben"]
    for own in orders.values():
        assert 10 <= own.count([1, 0]) <= 30
        assert own.count([0, 1]) + own.count([1, 0]) == 40
    assert [store.open(item, "ann").order for item in store.items] == orders["ann"]
    assert sum(own.kind == "order" for own in store.revisions()) == 80
    again = new_store(tmp_path / "two", items=40, overlap=40, seed=5)
    assert [again.open(item, "ben").order for item in reversed(again.items)] == orders["ben"][::-1]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["ann", "ben", "cleo"]), st.sampled_from(["offer", "finish", "release", "wait", "work"])
        ),
        max_size=40,
    ),
    overlap=st.integers(0, 3),
    each=st.integers(1, 2),
)
@limits(max_examples=60)
def test_live_leases_and_finished_items_never_exceed_what_an_item_wants(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], overlap: int, each: int
) -> None:
    clock = Clock()
    names = ["ann", "ben", "cleo"]
    store = new_store(tmp_path_factory.mktemp("any"), 4, names, overlap=overlap, each=each, clock=clock)
    without_waiting_for_the_disk(store)
    store.leases_each = 4
    leases: dict[tuple[str, str], float] = {}
    done: set[tuple[str, str]] = set()
    for name, action in steps:
        held = [item for (who, item), until in leases.items() if who == name and until > clock.now]
        if action == "offer":
            item = store.offer(name)
            if item is not None:
                assert (name, item) not in done
                leases[name, item] = clock.now + LEASE_SECONDS
                taken = {who for (who, thing), until in leases.items() if thing == item and until > clock.now}
                taken |= {who for who, thing in done if thing == item}
                with store._reading() as database:
                    (wanted,) = database.execute("SELECT wanted FROM items WHERE id = ?", (item,)).fetchone()
                assert len(taken) <= (len(names) if wanted is None else wanted)
        elif action == "wait":
            clock.now += LEASE_SECONDS / 2
        elif held:
            if action == "finish":
                finish(store, held[0], name)
                done.add((name, held[0]))
                del leases[name, held[0]]
            elif action == "release":
                store.release(held[0], name)
                del leases[name, held[0]]
            else:
                base = store.state(held[0], name).spans
                store.save(held[0], name, "span", "s", span(), base["s"].version if base else 0)
                leases[name, held[0]] = clock.now + LEASE_SECONDS
    for name in names:
        assert store.progress(name).done == sum(who == name for who, _item in done)
    store.close()
