"""Suggestions, items that cannot be judged, and the manager's page, as the server has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_stores import TEXTS, samples, settings, span

pytest.importorskip("starlette", reason="needs Starlette")
pytest.importorskip("httpx2", reason="needs httpx2")

from starlette.testclient import TestClient

from fgrl.components.annotators.human import HumanAnnotations
from fgrl.components.annotators.mark_by_rules import MarkByRules
from fgrl.feedback.page_settings import PageSettings
from fgrl.pages.annotation import serving
from fgrl.pages.annotation.access import Address, new_token
from fgrl.pages.annotation.export import exported
from fgrl.pages.annotation.statistics import statistics, tables
from fgrl.pages.annotation.store import Store
from fgrl.types import Annotation, Criterion, Response, Sample, Span

HOST = "http://127.0.0.1:8347"
BY_RULES = Annotation(
    by="rules",
    spans=[
        Span(start=0, end=8, label=-2.0, reasons=["wrong", "made up"], note="twice"),
        Span(start=9, end=14, label=0.0),
        Span(start=9, end=14, label=0.5),
        Span(start=3, end=3, label=1.0),
    ],
)


def suggesting(**modes: Any) -> PageSettings:
    return settings(modes={"suggestions": True, "preference_reason": False, **modes})


def with_suggestions(count: int = 2) -> list[Sample]:
    """Samples whose first response a rule has marked."""
    return [
        sample.model_copy(update={"responses": [Response(text=TEXTS[0], annotations=[BY_RULES]), sample.responses[1]]})
        for sample in samples(count)
    ]


class World:
    """A store, its server, and clients of it."""

    def __init__(self, store: Store) -> None:
        self.store, self.manager = store, new_token()
        address = Address("127.0.0.1", 8347)
        self.links = serving.issue_links(store, address)
        self.app = serving.application(store, address, self.manager)

    def client(self, path: str) -> TestClient:
        client = TestClient(self.app, base_url=HOST, headers={"origin": HOST}, follow_redirects=False)
        entered = client.get(path)
        assert entered.status_code == 303
        client.headers["x-session"] = entered.headers["location"].partition("#session=")[2]
        return client

    def annotator(self, name: str = "ann") -> TestClient:
        client = self.client(self.links[name].removeprefix(HOST))
        assert client.post("/api/items/next", json={}).json()["item"]["id"] == "1"
        return client

    def managing(self) -> TestClient:
        return self.client(f"/manage/{self.manager}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Store.create(tmp_path / "page.sqlite", with_suggestions(), suggesting(), ["ann", "ben"], 2) as store:
        yield World(store)


def put(client: TestClient, path: str, body: dict[str, Any], base: int = 0) -> Any:
    return client.put(f"/api/items/1/{path}", json={"base": base, "body": body})


def missing(client: TestClient) -> list[str]:
    answer = client.post("/api/items/1/done", json={"done": True})
    return [] if answer.status_code == 200 else answer.json()["missing"]


# -- suggestions -----------------------------------------------------------------------------------------------------------


def test_suggestions_are_shown_as_the_annotator_would_store_them(world: World) -> None:
    item = world.annotator().get("/api/items/1").json()
    passage = {"place": 0, "start": 0, "end": 8, "quote": TEXTS[0][:8], "label": -1}
    liked = {"place": 0, "start": 9, "end": 14, "quote": TEXTS[0][9:14], "label": 1, "reasons": [], "note": ""}
    assert item["suggested"] == {
        "0.0.0": {**passage, "reasons": ["wrong", "other"], "note": "made up; twice"},
        "0.0.2": liked,
    }
    assert "rules" not in json.dumps(item), "nobody is told who suggested it"


@pytest.mark.parametrize(
    ("modes", "keys", "reasons", "note"),
    [
        ({"suggestions": False}, [], [], ""),
        ({"spans": "dislikes"}, ["0.0.0"], ["wrong", "other"], "made up; twice"),
        ({"reasons": "free_text"}, ["0.0.0", "0.0.2"], [], "wrong; made up; twice"),
        ({"reasons": "none"}, ["0.0.0", "0.0.2"], [], ""),
    ],
)
def test_suggestions_follow_the_modes_of_the_page(
    modes: dict[str, Any], keys: list[str], reasons: list[str], note: str
) -> None:
    shown = suggesting(**modes).suggestions(with_suggestions(1)[0], [0, 1])
    assert list(shown) == keys
    assert [(own["reasons"], own["note"]) for own in shown.values()][:1] == ([(reasons, note)] if keys else [])
    assert suggesting(**modes).suggestions(with_suggestions(1)[0], [1]) == {}


def test_what_annotators_of_recipes_mark_can_be_suggested(tmp_path: Path) -> None:
    """A rule's product, and a file that is attached, as the page takes them."""
    never = Criterion(text="Never say loud.", check={"name": "keywords:forbidden_words", "forbidden_words": ["loud"]})
    (by_rule,) = MarkByRules().annotate(
        [Sample(id="s", prompt="Write.", responses=[Response(text=TEXTS[0])], rubric=[never])]
    )
    single = suggesting(responses=1, preference=False)
    with Store.create(tmp_path / "rules.sqlite", [by_rule], single, ["ann"]) as store:
        item = World(store).annotator().get("/api/items/1").json()
    assert [(own["quote"], own["label"]) for own in item["suggested"].values()] == [("loud", 1)]
    (tmp_path / "marks.jsonl").write_text(
        json.dumps({"id": "item-1", "response": TEXTS[1], "by": "critic", "poor": ["dear"]}) + "\n"
    )
    (attached,) = HumanAnnotations(path=str(tmp_path / "marks.jsonl")).annotate(samples(1))
    assert [own["quote"] for own in suggesting().suggestions(attached, [0, 1]).values()] == ["dear"]


def test_every_suggestion_is_decided_before_an_item_is_done(world: World) -> None:
    ann = world.annotator()
    assert missing(ann) == ["2 suggestions are neither accepted nor rejected", "no response is preferred"]
    put(ann, "verdict", {"better": 0, "reason": ""})
    assert put(ann, "suggestions/0.0.0", {"accepted": False, "span": None}).json() == {"version": 1}
    assert missing(ann) == ["1 suggestion is neither accepted nor rejected"]
    ann.put("/api/items/1/spans/s1", json={"id": "s1", "base": 0, **span(9, 14, label=1, reasons=["fact"])})
    assert put(ann, "suggestions/0.0.2", {"accepted": True, "span": "s1"}).json() == {"version": 1}
    assert missing(ann) == []
    (sample, _other) = exported(world.store)
    mine = sample.meta["annotation"]["by"]["ann"]["suggestions"]
    assert [(own["id"], own["by"], own["accepted"], own.get("span")) for own in mine] == [
        ("0.0.0", "rules", False, None),
        ("0.0.2", "rules", True, "s1"),
    ]
    assert sample.responses[0].annotations[0] == BY_RULES, "the rule's own marks stay as they were"
    assert statistics([sample], resamples=10).suggestions == {"rules": {"accepted": 1, "rejected": 1}}
    # one that is taken back is undecided again
    assert put(ann, "suggestions/0.0.2", {"accepted": None, "span": None}, 1).json() == {"version": 2}
    assert missing(ann) == ["1 suggestion is neither accepted nor rejected"]


@pytest.mark.parametrize("key", ["0.0.1", "0.0.3", "0.0.9", "1.0.0", "x", "%2e%2e"])
def test_what_is_not_suggested_cannot_be_decided(world: World, key: str) -> None:
    answer = put(world.annotator(), f"suggestions/{key}", {"accepted": True, "span": None})
    assert (answer.status_code, "no suggestion" in answer.text) == (422, True)


def test_decisions_of_two_windows_are_a_conflict(world: World) -> None:
    ann = world.annotator()
    put(ann, "suggestions/0.0.0", {"accepted": False, "span": None})
    answer = put(ann, "suggestions/0.0.0", {"accepted": True, "span": "s1"})
    assert (answer.status_code, answer.json()["current"]) == (
        409,
        {"version": 1, "body": {"accepted": False, "span": None}},
    )


# -- cannot be judged ------------------------------------------------------------------------------------------------------


def test_an_item_that_cannot_be_judged_needs_a_comment_and_nothing_else(world: World) -> None:
    ann = world.annotator()
    put(ann, "verdict", {"better": 0, "reason": "?"})
    put(ann, "cannot_judge", {"cannot": True, "comment": " "})
    assert missing(ann) == ["there is no comment that says why the item cannot be judged"]
    put(ann, "cannot_judge", {"cannot": True, "comment": "Another language."}, 1)
    assert missing(ann) == []
    assert [(item["id"], item["state"], item["cannot_judge"]) for item in ann.get("/api/items").json()] == [
        ("1", "done", True)
    ]
    (sample, _other) = exported(world.store)
    assert sample.verdicts is None
    assert [len(response.annotations) for response in sample.responses] == [1, 0], (
        "no empty annotation: nothing was judged"
    )
    assert sample.meta["annotation"]["by"]["ann"]["cannot_judge"] == "Another language."
    numbers = statistics([sample], resamples=10)
    assert (numbers.works, numbers.unjudged, numbers.verdicts) == (1, 1, {"first": 0, "second": 0, "tie": 0})
    assert [row.items for row in numbers.times.values()] == [0]
    assert "1 cannot be judged" in tables(numbers)[0][0]
    # the preference is there again when the item can be judged after all
    put(ann, "cannot_judge", {"cannot": False, "comment": "Another language."}, 2)
    assert next(exported(world.store)).verdicts[0].verdict == "first"


@pytest.mark.parametrize(
    "body",
    [{"cannot": 1, "comment": ""}, {"comment": "x"}, {"cannot": True, "comment": None}, {"cannot": True, "more": 1}],
)
def test_only_a_choice_and_a_comment_are_stored(world: World, body: dict[str, Any]) -> None:
    ann = world.annotator()
    before = list(world.store.revisions())
    assert put(ann, "cannot_judge", body).status_code == 422
    assert list(world.store.revisions()) == before


def test_settings_and_exports_of_before_are_read(tmp_path: Path) -> None:
    stored = json.loads(settings().model_dump_json())
    del stored["markdown"], stored["modes"]["suggestions"]
    assert PageSettings.model_validate_json(json.dumps(stored)) == settings()


# -- the manager's page ----------------------------------------------------------------------------------------------------


def test_the_manager_sees_everybody(world: World) -> None:
    ann, ben = world.annotator(), world.annotator("ben")
    for client, better in ((ann, 0), (ben, 1)):
        put(client, "verdict", {"better": better, "reason": "why"})
        for key in ("0.0.0", "0.0.2"):
            put(client, f"suggestions/{key}", {"accepted": False, "span": None})
    ben.put("/api/items/1/spans/s1", json={"id": "s1", "base": 0, **span(4, 8)})
    assert missing(ann) == missing(ben) == []
    manager = world.managing()
    overview = manager.get("/api/manage/overview").json()
    wanted = ("name", "done", "remaining", "cannot_judge", "dislikes")
    assert [tuple(own[name] for name in wanted) for own in overview["annotators"]] == [
        ("ann", 1, 1, 0, 0),
        ("ben", 1, 1, 0, 1),
    ]
    first, second = overview["items"]
    assert (first["by"], first["differ"]) == ({"ann": "done", "ben": "done"}, True)
    assert (second["query"], second["by"], second["differ"]) == ("When does café 2 open?", {}, False)
    rows = [row for table in overview["tables"] for row in table["rows"]]
    assert [row[0] for row in rows].count("Fleiss' kappa") == 1
    item = manager.get("/api/manage/items/1").json()
    assert item["people"]["ben"]["spans"]["s1"]["quote"] == TEXTS[0][4:8]
    assert item["people"]["ann"]["verdict"]["body"] == {"better": 0, "reason": "why"}
    assert manager.get("/api/manage/items/2").json()["people"] == {}
    assert manager.get("/api/manage/items/9").status_code == 404
    # what is given back is to be done again
    assert manager.post("/api/manage/items/1/reopen", json={"annotator": "ben"}).json() == {"done": False}
    assert [own["done"] for own in manager.get("/api/manage/overview").json()["annotators"]] == [1, 0]
    assert ben.post("/api/items/next", json={}).json()["item"]["id"] == "1"
    for name in ("zoe", "ben"):
        assert manager.post("/api/manage/items/1/reopen", json={"annotator": name}).status_code == 422


def test_each_kind_of_session_opens_its_own_part_only(world: World) -> None:
    ann, manager = world.annotator(), world.managing()
    stranger = TestClient(world.app, base_url=HOST, headers={"origin": HOST}, follow_redirects=False)
    token = world.links["ann"].rpartition("/")[2]
    for method, path in (
        ("GET", "overview"),
        ("GET", "items/1"),
        ("POST", "items/1/reopen"),
        ("GET", ""),
        ("GET", "x"),
    ):
        for client in (ann, stranger):
            assert client.request(method, f"/api/manage/{path}", json={"annotator": "ann"}).status_code == 401
    assert manager.get("/api/session").status_code == manager.get("/api/items/1").status_code == 401
    assert stranger.get(f"/manage/{token}").status_code == stranger.get(f"/enter/{world.manager}").status_code == 401
    foreign = manager.post(
        "/api/manage/items/1/reopen", json={"annotator": "ann"}, headers={"origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
    assert stranger.get("/manage").status_code == 200
    for file in world.store.path.parent.glob("page.sqlite*"):
        assert world.manager.encode() not in file.read_bytes()
    assert [session.annotator for session in world.store.sessions()] == ["ann"], (
        "a manager's session ends with the server"
    )


def test_without_a_token_there_is_no_managers_page(world: World) -> None:
    app = serving.application(world.store, Address("127.0.0.1", 8347))
    client = TestClient(app, base_url=HOST, headers={"origin": HOST})
    assert [client.get(path).status_code for path in ("/manage", "/manage/x")] == [404, 404]
    assert client.get("/api/manage/overview").status_code == 401
