"""The annotation page's server: what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_stores import TEXTS, new_store, samples, settings, span, without_waiting_for_the_disk
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="needs Starlette")
pytest.importorskip("httpx2", reason="needs httpx2")

from starlette.testclient import TestClient

from fgrl.base.errors import UsageError
from fgrl.pages.annotation import access, serving
from fgrl.pages.annotation.access import Address, Sessions
from fgrl.pages.annotation.guard import HEADERS, LARGEST_BODY
from fgrl.pages.annotation.revisions import checked
from fgrl.pages.annotation.server import application
from fgrl.pages.annotation.store import Store
from fgrl.types import Message, Response, Sample

HOST = "http://127.0.0.1:8347"
ADDRESS = Address("127.0.0.1", 8347)


class Page:
    """A store with its server, and clients of it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.links = serving.issue_links(store, ADDRESS)
        files = folder / "files"
        files.mkdir()
        (files / "index.html").write_text("<!doctype html><title>Page</title>")
        (files / "page.js").write_text("export const page = 1;")
        (files / "notes.txt").write_text("not sent")
        self.app = application(
            store, Sessions(store.token_hashes(), f"fgrl_annotate_{store.id}", store), ADDRESS, files
        )

    def stranger(self, **headers: str) -> TestClient:
        """A client without a session, on the right host, with the page's origin."""
        return TestClient(self.app, base_url=HOST, headers={"origin": HOST, **headers}, follow_redirects=False)

    def client(self, name: str = "ann") -> TestClient:
        client = self.stranger()
        entered = client.get(self.links[name].removeprefix(HOST))
        assert entered.status_code == 303
        client.headers["x-session"] = kept_by_page(entered)
        return client


def kept_by_page(entered: Any) -> str:
    """What the page reads behind the # of its address, and sends with every request."""
    path, _, kept = entered.headers["location"].partition("#session=")
    assert path == "/"
    return str(kept)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with new_store(tmp_path, items=3) as store:
        yield Page(store, tmp_path)


def sent(start: int = 4, end: int = 8, *, id: str = "s1", base: int = 0, **changes: Any) -> dict[str, Any]:
    return {"id": id, "base": base, **span(start, end, **changes)}


# -- annotating ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        ({"question": "When does it open?"}, "When does it open?"),
        ({"question": " "}, "whole"),
        ({"question": 3}, "whole"),
    ],
)
def test_a_query_is_shown_in_place_of_the_whole_prompt(tmp_path: Path, meta: dict[str, Any], shown: str) -> None:
    one = Sample(id="1", prompt="whole", responses=[Response(text=text) for text in TEXTS], meta=meta)
    with Store.create(tmp_path / "page.sqlite", [one], settings(), ["ann"]) as store:
        item = Page(store, tmp_path).client().post("/api/items/next", json={}).json()["item"]
        assert item["prompt"] == shown


def test_an_annotator_works_through_an_item(page: Page) -> None:
    ann = page.client()
    session = ann.get("/api/session").json()
    assert (session["annotator"], session["store"]) == ("ann", page.store.id)
    assert session["settings"] == json.loads(settings().model_dump_json())
    assert session["progress"] == {"done": 0, "started": 0, "remaining": 3, "total": 3}
    item = ann.post("/api/items/next", json={}).json()["item"]
    assert {name: item[name] for name in ("id", "prompt", "document", "domain", "spans", "answers", "verdict", "done", "seconds")} == {
        "id": "1", "prompt": "When does café 1 open?", "document": "Café 1: open from 8.", "domain": "yelp", "spans": {},
        "answers": {}, "verdict": None, "done": False, "seconds": 0.0,
    }  # fmt: skip
    assert item["responses"] == [{"place": place, "text": TEXTS[place]} for place in item["order"]]
    assert sorted(item["order"]) == [0, 1]
    assert "model" not in json.dumps(item)
    assert "never shown" not in json.dumps(item)

    assert ann.put("/api/items/1/spans/s1", json=sent()).json() == {"version": 1}
    assert ann.put("/api/items/1/spans/s1", json=sent(base=1, note="more")).json() == {"version": 2}
    assert (
        ann.put(
            "/api/items/1/spans/s2", json=sent(0, 10, id="s2", place=1, label=1, reasons=["fact", "other"], note="so")
        ).status_code
        == 200
    )
    assert ann.put("/api/items/1/answers/1", json={"base": 0, "body": {"overall": ["good"], "why": "x"}}).json() == {
        "version": 1
    }
    missing = ann.post("/api/items/1/done", json={"done": True})
    assert (missing.status_code, missing.json()["missing"]) == (422, ["no response is preferred"])
    assert ann.put("/api/items/1/verdict", json={"base": 0, "body": {"better": 1, "reason": "shorter"}}).json() == {
        "version": 1
    }
    assert ann.post("/api/items/1/time", json={"id": "t1", "seconds": 12.5}).json() == {"seconds": 12.5}
    assert ann.post("/api/items/1/time", json={"id": "t1", "seconds": 12.5}).json() == {"seconds": 12.5}
    assert ann.post("/api/items/1/time", json={"id": "t2", "seconds": 2}).json() == {"seconds": 14.5}
    assert ann.post("/api/items/1/done", json={"done": True}).json() == {
        "done": True, "progress": {"done": 1, "started": 0, "remaining": 2, "total": 3},
    }  # fmt: skip
    listed = {"id": "1", "state": "done", "leased": False, "cannot_judge": False}
    assert ann.get("/api/items").json() == [{**listed, "query": "When does café 1 open?", "domain": "yelp"}]

    again = page.client().get("/api/items/1").json()
    assert again["spans"]["s1"] == {"id": "s1", "version": 2, **span(note="more")}
    assert again["answers"] == {"1": {"version": 1, "body": {"overall": ["good"], "why": "x"}}}
    assert again["verdict"] == {"version": 1, "body": {"better": 1, "reason": "shorter"}}
    assert (again["done"], again["seconds"], again["order"]) == (True, 14.5, item["order"])
    assert ann.post("/api/items/next", json={"current": "1"}).json()["item"]["id"] == "2"
    assert ann.post("/api/items/2/release").json() == {"released": True}
    assert page.client("ben").post("/api/items/next", json={}).json()["item"]["id"] == "2"


def test_undo_deletes_and_redo_brings_back(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    ann.put("/api/items/1/spans/s1", json=sent())
    assert ann.put("/api/items/1/spans/s1", json=sent(base=1, deleted=True)).json() == {"version": 2}
    assert ann.get("/api/items/1").json()["spans"]["s1"]["deleted"] is True
    assert ann.put("/api/items/1/spans/s1", json=sent(base=2)).json() == {"version": 3}
    assert [own.body["deleted"] for own in page.store.revisions(annotator="ann") if own.kind == "span"] == [
        False,
        True,
        False,
    ]


def test_two_tabs_of_one_annotator_see_the_conflict(page: Page) -> None:
    first, second = page.client(), page.client()
    first.post("/api/items/next", json={})
    first.put("/api/items/1/spans/s1", json=sent())
    assert first.put("/api/items/1/spans/s1", json=sent(base=1, note="first tab")).json() == {"version": 2}
    refused = second.put("/api/items/1/spans/s1", json=sent(base=1, note="second tab"))
    assert refused.status_code == 409
    assert refused.json()["current"] == {"id": "s1", "version": 2, **span(note="first tab")}
    assert second.put("/api/items/1/spans/s1", json=sent(base=2, note="second tab")).json() == {"version": 3}
    for base, body in ((0, {"better": 0, "reason": "a"}), (1, {"better": 1, "reason": "b"})):
        first.put("/api/items/1/verdict", json={"base": base, "body": body})
    other = second.put("/api/items/1/verdict", json={"base": 1, "body": {"better": None, "reason": "c"}})
    assert (other.status_code, other.json()["current"]) == (409, {"version": 2, "body": {"better": 1, "reason": "b"}})


def test_a_repeated_request_is_answered_alike_and_stored_once(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    answers = [ann.put("/api/items/1/spans/s1", json=sent()).json() for _ in range(3)]
    assert answers == [{"version": 1}] * 3
    assert sum(own.kind == "span" for own in page.store.revisions()) == 1


def test_two_annotators_do_not_see_each_other(tmp_path: Path) -> None:
    page = Page(new_store(tmp_path, overlap=3), tmp_path)
    ann, ben = page.client("ann"), page.client("ben")
    for client, note in ((ann, "of ann"), (ben, "of ben")):
        client.post("/api/items/next", json={})
        assert client.put("/api/items/1/spans/s1", json=sent(note=note)).json() == {"version": 1}
    assert ann.get("/api/items/1").json()["spans"]["s1"]["note"] == "of ann"
    assert "of ann" not in ben.get("/api/items/1").text
    assert ben.get("/api/session").json()["annotator"] == "ben"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", "spans/s1", sent(quote="x"), 422, "quote"),
        ("PUT", "spans/s1", sent(id="other"), 422, "address"),
        ("PUT", "spans/s1", sent(reasons=["fact"]), 422, "fact"),
        ("PUT", "spans/s1", sent(label=2), 422, "label"),
        ("PUT", "spans/s1", sent() | {"version": 1}, 422, "version"),
        ("PUT", "spans/s1", sent() | {"start": 4.0}, 422, "start"),
        ("PUT", "spans/s1", sent() | {"base": -1}, 422, "base"),
        ("PUT", "spans/s1", {}, 422, "required"),
        ("PUT", "spans/s1", [], 422, "object"),
        ("PUT", "spans/a%2Fb", sent(id="a/b"), 404, "Not Found"),
        ("PUT", "spans/a b", sent(id="a b"), 422, "id"),
        ("PUT", "answers/0", {"base": 0, "body": {"overal": []}}, 422, "overall"),
        ("PUT", "answers/0", {"base": 0, "body": {"overall": ["great"]}}, 422, "great"),
        ("PUT", "answers/2", {"base": 0, "body": {}}, 422, "place of a response"),
        ("PUT", "answers/x", {"base": 0, "body": {}}, 422, "place of a response"),
        ("PUT", "moods", {"base": 0, "body": {}}, 404, "Not Found"),
        ("PUT", "verdict/x", {"base": 0, "body": {"better": 1}}, 422, "has no key"),
        ("PUT", "verdict", {"base": 0, "body": {}}, 422, "better"),
        ("PUT", "verdict", {"base": 0, "body": {"better": 2, "reason": ""}}, 422, "no response 2"),
        ("PUT", "verdict", {"base": 0, "body": {"better": 1, "reason": "", "mood": 1}}, 422, "mood"),
        ("POST", "time", {"id": "t", "seconds": -1}, 422, "seconds"),
        ("POST", "time", {"id": "t", "seconds": 1e9}, 422, "seconds"),
        ("POST", "done", {}, 422, "done"),
        ("POST", "done", {"done": "true"}, 422, "done"),
        ("DELETE", "spans/s1", None, 405, "Method Not Allowed"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_reason(
    page: Page, method: str, path: str, body: Any, status: int, words: str
) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    answer = ann.request(method, f"/api/items/1/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]
    assert [own.kind for own in page.store.revisions()] == ["order"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"done": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"done":' + b"1" * 10_000 + b"}",
        b'{"done": "\\ud800"}',
        b"null",
    ],
    ids=["cut", "NaN", "not UTF-8", "deep", "a long number", "half a surrogate pair", "null"],
)
def test_bodies_that_are_no_json_object_are_refused(page: Page, content: bytes) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    for path in ("/api/items/1/done", "/api/items/1/time", "/api/items/next"):
        assert ann.post(path, content=content).status_code == 422
    assert ann.put("/api/items/1/answers/0", content=b'{"base":0,"body":{"why":"\\ud800"}}').status_code == 422
    assert ann.put("/api/items/1/answers/0", content=b'{"base":0,"body":{"why":NaN}}').status_code == 422


def test_items_that_do_not_exist_or_belong_to_another(page: Page) -> None:
    ann, ben = page.client("ann"), page.client("ben")
    ann.post("/api/items/next", json={})
    for wrong in ("0", "4", "x", "-1", "1.0", "9" * 30, "١"):
        assert ann.get(f"/api/items/{wrong}").status_code == 404
    assert ben.get("/api/items/1").status_code == 403
    assert ben.put("/api/items/1/spans/s1", json=sent()).status_code == 403
    assert ben.put("/api/items/2/spans/s1", json=sent()).status_code == 403
    assert ben.post("/api/items/next", json={"current": "77"}).status_code == 404


def test_modes_of_the_page_hold_on_the_server_too(tmp_path: Path) -> None:
    dislikes = settings(modes={"spans": "dislikes", "preference": False, "reasons": "free_text"}, questions=[])
    page = Page(new_store(tmp_path, settings=dislikes), tmp_path)
    ann = page.client()
    ann.post("/api/items/next", json={})
    assert "dislikes only" in ann.put("/api/items/1/spans/s1", json=sent(label=1, reasons=[])).json()["error"]
    assert ann.put("/api/items/1/spans/s1", json=sent()).status_code == 422
    assert ann.put("/api/items/1/spans/s1", json=sent(reasons=[], note="wrong hour")).status_code == 200
    assert ann.put("/api/items/1/verdict", json={"base": 0, "body": {"better": 1, "reason": ""}}).status_code == 422
    assert ann.post("/api/items/1/done", json={"done": True}).json()["done"] is True


def test_a_chosen_response_alone_can_be_annotated(tmp_path: Path) -> None:
    single = settings(
        modes={"responses": 1, "preference": False},
        questions=[{"id": "why", "text": "Why?", "kind": "text", "required": True}],
    )
    chosen = [sample.model_copy(update={"chosen": 1}) for sample in samples(1)]
    page = Page(Store.create(tmp_path / "page.sqlite", chosen, single, ["ann"]), tmp_path)
    ann = page.client()
    item = ann.post("/api/items/next", json={}).json()["item"]
    assert (item["order"], item["responses"]) == ([1], [{"place": 1, "text": TEXTS[1]}])
    assert ann.put("/api/items/1/spans/s1", json=sent(place=0)).status_code == 422
    assert ann.put("/api/items/1/spans/s1", json=sent(place=1)).status_code == 200
    assert ann.post("/api/items/1/done", json={"done": True}).json()["missing"] == [
        '"Why?" is not answered for every response'
    ]
    assert ann.put("/api/items/1/answers/1", json={"base": 0, "body": {"why": "because"}}).status_code == 200
    assert ann.post("/api/items/1/done", json={"done": True}).status_code == 200


def test_a_span_can_be_deleted_when_its_reason_is_no_longer_offered(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    ann.put("/api/items/1/spans/s1", json=sent())
    fewer = settings().model_dump()
    fewer["taxonomy"]["dislikes"]["groups"][0]["attributes"].pop(0)
    page.store.set_settings(type(settings()).model_validate(fewer))
    assert ann.put("/api/items/1/spans/s1", json=sent(base=1, note="x")).status_code == 422
    assert ann.put("/api/items/1/spans/s1", json=sent(base=1, deleted=True)).json() == {"version": 2}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 60) | st.integers() | st.floats() | st.sampled_from(["", "s1", "wrong", "fact", "overall", "good", "café", "\x00"]) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["base", "body", "id", "better", "reason", "overall"]) | st.text(max_size=3), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "1/spans/s1": ("PUT", sent()),
    "1/answers/0": ("PUT", {"base": 0, "body": {"overall": ["good"], "why": "x"}}),
    "1/verdict": ("PUT", {"base": 0, "body": {"better": 1, "reason": "x"}}),
    "1/time": ("POST", {"id": "t1", "seconds": 1.5}),
    "1/done": ("POST", {"done": False}),
    "next": ("POST", {"current": "1"}),
}


@given(data=st.data())
@limits(max_examples=40)
def test_no_body_makes_the_server_fail(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Right bodies with some fields replaced, left out or added: stored or refused with a reason, and never an error of ours (the
    client raises those)."""
    folder = tmp_path_factory.mktemp("any")
    with new_store(folder) as store:
        without_waiting_for_the_disk(store)
        ann = Page(store, folder).client()
        ann.post("/api/items/next", json={})
        for path in data.draw(st.lists(st.sampled_from(sorted(RIGHT)), min_size=1, max_size=5)):
            method, right = RIGHT[path]
            body: Any = {**right}
            for name in data.draw(st.lists(st.sampled_from([*right, "more"]), max_size=2)):
                if data.draw(st.booleans()):
                    body[name] = data.draw(JSON)
                else:
                    body.pop(name, None)
            if isinstance(body.get("body"), dict) and data.draw(st.booleans()):
                body["body"] = {
                    **body["body"],
                    data.draw(st.sampled_from(["better", "reason", "overall", "why"])): data.draw(JSON),
                }
            content = json.dumps(data.draw(st.sampled_from([body, body, body, [body]])))
            before = len(list(store.revisions()))
            answer = ann.request(method, f"/api/items/{path}", content=content)
            assert answer.status_code in (200, 404, 409, 422), (path, content, answer.text)
            assert (answer.status_code == 200) == ("error" not in answer.json())
            assert len(list(store.revisions())) - before <= (1 if answer.status_code == 200 else 0)
        for revision in store.revisions():
            checked(revision.kind, revision.key, revision.body, store.sample(revision.item))


# -- hostile text ----------------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</textarea><svg onload=alert(1)>", "javascript:alert(1)",
    "\u202eabc\u202c \u2066x\u2069", "\x00\x1b[2J\r\n", "'; DROP TABLE revisions; --", "{{7*7}} ${7*7} <%= 7 %>",
    "e\u0301\u0323 👩‍👩‍👧‍👦 🇩🇪 \U0010ffff", "\u2028\u2029\ufeff", "a" * 1_000_000, "\u05d0\u0628 mixed",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_hostile_responses_come_back_as_the_same_text(tmp_path: Path, text: str) -> None:
    one = Sample(id=text[:200], prompt=[Message(role="user", content=text)], responses=[Response(text=text), Response(text="x")], meta={"document": [text, text], "domain": {"name": text}})  # fmt: skip
    with Store.create(tmp_path / "page.sqlite", [one], settings(), ["<b>ann</b>"]) as store:
        page = Page(store, tmp_path)
        client = page.client("<b>ann</b>")
        answer = client.post("/api/items/next", json={})
        item = answer.json()["item"]
        assert answer.headers["content-type"] == "application/json"
        assert {own["place"]: own["text"] for own in item["responses"]} == {0: text, 1: "x"}
        assert item["prompt"] == [{"role": "user", "content": text}]
        assert item["document"] == f"{text}\n\n{text}"
        assert json.loads(item["domain"]) == {"name": text}
        assert client.get("/api/session").json()["annotator"] == "<b>ann</b>"
        whole = {
            "id": "s1",
            "base": 0,
            "place": 0,
            "start": 0,
            "end": len(text),
            "quote": text,
            "label": -1,
            "reasons": ["wrong"],
        }
        short = text if len(text) <= 20_000 else ""
        assert client.put("/api/items/1/spans/s1", json=whole | {"note": short}).json() == {"version": 1}
        assert client.put("/api/items/1/answers/0", json={"base": 0, "body": {"why": short}}).status_code == 200
        read = client.get("/api/items/1").json()
        assert (read["spans"]["s1"]["quote"], read["spans"]["s1"]["note"]) == (text, short)
        assert read["answers"]["0"]["body"]["why"] == short
        (stored,) = (own for own in store.revisions() if own.kind == "span")
        assert stored.body["quote"] == text


def test_notes_that_are_too_long_are_refused_clearly(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    refused = ann.put("/api/items/1/spans/s1", json=sent(note="x" * 1_000_000))
    assert (refused.status_code, "20000" in refused.json()["error"]) == (422, True)


def test_answers_that_are_too_long_are_refused_clearly(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    longest = "é" * 20_000
    refused = ann.put("/api/items/1/answers/0", json={"base": 0, "body": {"why": longest + "x"}})
    assert (refused.status_code, refused.json()["error"]) == (422, "why: wants at most 20000 characters, got 20001")
    assert ann.put("/api/items/1/answers/0", json={"base": 0, "body": {"why": longest}}).json() == {"version": 1}


# -- who may ask -----------------------------------------------------------------------------------------------------------

OPEN = {("GET", "/"), ("HEAD", "/"), ("GET", "/static/{file}"), ("HEAD", "/static/{file}"), ("GET", "/enter/{token}"), ("HEAD", "/enter/{token}")}  # fmt: skip
"""What needs no session: the page's own files, and the links."""


def test_no_request_without_a_token_reads_or_writes(page: Page) -> None:
    """Every route with every method, and addresses that are none."""
    ann = page.client()
    ann.post("/api/items/next", json={})
    ann.put("/api/items/1/spans/s1", json=sent(note="a secret note"))
    before = list(page.store.revisions())
    *public, calls = page.app.app.routes  # type: ignore[attr-defined]
    routes = [*(route.path for route in public), *(f"/api{route.path}" for route in calls.routes)]
    assert len(routes) == 12
    ((name, cookie),) = ann.cookies.items()
    kept, token = ann.headers["x-session"], page.links["ann"].rpartition("/")[2]
    stored = {session.id: session for session in page.store.sessions()}[kept.partition(".")[0]]
    ben = page.client("ben")
    strangers = {
        "nothing": page.stranger(),
        "the cookie alone, which every port of the host gets": page.stranger(cookie=f"{name}={cookie}"),
        "the cookie, whose name tells the session, with a guess": page.stranger(
            cookie=f"{name}={cookie}", **{"x-session": f"{stored.id}.{token}"}
        ),
        "the key of the page alone": page.stranger(**{"x-session": kept}),
        "an empty cookie": page.stranger(cookie=f"{name}=", **{"x-session": kept}),
        "the stored hashes": page.stranger(
            cookie=f"{name}={stored.cookie.hex()}", **{"x-session": f"{stored.id}.{stored.page.hex()}"}
        ),
        "the link's key": page.stranger(cookie=f"{name}={token}", **{"x-session": f"{stored.id}.{token}"}),
        "the cookie with another session's key": page.stranger(
            cookie=f"{name}={cookie}", **{"x-session": ben.headers["x-session"]}
        ),
        "a token in the wrong place": page.stranger(authorization="Bearer " + page.links["ann"].rpartition("/")[2]),
    }
    tried = 0
    for who, stranger in strangers.items():
        for path in [
            *routes,
            "/api",
            "/api/",
            "/API/session",
            "//api/session",
            "/static/../api/session",
            "/other",
            "/api/items/1/",
        ]:
            url = path.replace("{item}", "1").replace("{what}", "spans").replace("{key}", "s1")
            url = url.replace("{file}", "..%2Fapi").replace("{token}", "A" * 43)
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FGRL"):
                answer = stranger.request(
                    method, url, content=json.dumps(sent(base=1)) if method in ("POST", "PUT", "PATCH") else None
                )
                tried += 1
                assert "secret" not in answer.text
                assert "set-cookie" not in answer.headers
                if (method, path) in OPEN:
                    assert answer.status_code == {"/": 200, "/static/{file}": 404, "/enter/{token}": 401}[path]
                else:
                    assert answer.status_code in (401, 404, 405, 413), (who, method, url, answer.status_code)
                    if path.startswith("/api/"):
                        assert answer.status_code == 401, (who, method, url)
    assert tried == len(strangers) * 19 * 9
    assert list(page.store.revisions()) == before


def test_links_are_random_and_only_their_hashes_are_stored(page: Page) -> None:
    tokens = [link.rpartition("/")[2] for link in page.links.values()]
    assert len(set(tokens)) == 2
    assert all(len(token) == 43 for token in tokens)
    page.store.close()
    for file in page.store.path.parent.glob("page.sqlite*"):
        assert not any(token.encode() in file.read_bytes() for token in tokens)


def test_the_cookie_is_for_this_server_and_no_script(page: Page) -> None:
    answer = page.stranger().get(page.links["ann"].removeprefix(HOST))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"fgrl_annotate_{page.store.id}_")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert not {"Domain", "Max-Age", "Expires"} & {part.partition("=")[0] for part in cookie.split("; ")}
    token = page.links["ann"].rpartition("/")[2]
    assert token not in cookie + answer.headers["location"], "the link's key is sent once, by the browser"
    assert kept_by_page(answer).partition(".")[2] not in cookie


def test_sessions_end(page: Page) -> None:
    now = 1_000_000.0
    sessions = Sessions(page.store.token_hashes(), "c", page.store, clock=lambda: now)

    def asked(cookie: str, kept: str) -> str | None:
        name, _, value = cookie.partition(";")[0].partition("=")
        return sessions.find(kept, {"other": "1", name: value})

    first = sessions.begin("ann", secure=False)
    assert asked(*first) == "ann"
    for _ in range(3):  # use keeps it alive
        now += access.SESSION_SECONDS - 1
        assert asked(*first) == "ann"
    now += access.SESSION_SECONDS + 1
    assert asked(*first) is None
    second = sessions.begin("ann", secure=False)
    assert [session.used for session in page.store.sessions()] == [now], "what has ended is forgotten"
    assert asked(*second) == "ann"
    assert sessions.begin("ben", secure=False)
    assert len(page.store.sessions()) == 2


def test_a_link_that_is_opened_later_changes_nothing_for_a_page_that_is_open(page: Page) -> None:
    """A page of another port can open its own link in the annotator's browser, which keeps one jar of cookies for all ports."""
    ann = page.client()
    entered = ann.get(page.links["ben"].removeprefix(HOST))
    assert entered.status_code == 303
    assert len(ann.cookies) == 2
    assert ann.get("/api/session").json()["annotator"] == "ann"
    ann.headers["x-session"] = kept_by_page(entered)
    assert ann.get("/api/session").json()["annotator"] == "ben"


def test_new_links_end_the_earlier_ones_and_a_restart_does_not(page: Page) -> None:
    ann = page.client()
    assert serving.issue_links(page.store, ADDRESS) == {}
    kept = {"x-session": ann.headers["x-session"]}
    again = TestClient(serving.application(page.store, ADDRESS), base_url=HOST, cookies=ann.cookies, headers=kept)
    assert again.get("/api/session").json()["annotator"] == "ann"
    fresh = serving.issue_links(page.store, ADDRESS, renew=["all"])
    assert set(fresh) == {"ann", "ben"}
    renewed = TestClient(
        serving.application(page.store, ADDRESS),
        base_url=HOST,
        cookies=ann.cookies,
        headers=kept,
        follow_redirects=False,
    )
    assert renewed.get("/api/session").status_code == 401
    assert renewed.get(page.links["ann"]).status_code == 401
    assert renewed.get(fresh["ann"]).status_code == 303
    assert list(serving.issue_links(page.store, ADDRESS, renew=["ben"])) == ["ben"]
    with pytest.raises(UsageError, match="--new-links zoe: the store's annotators are ann, ben"):
        serving.issue_links(page.store, ADDRESS, renew=["zoe"])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"}, {"origin": "https://127.0.0.1:8347"},
        {"origin": "http://localhost:8347"}, {"origin": ""}, {"origin": HOST + ".evil.example"},
        {"origin": "", "sec-fetch-site": "same-origin"},
    ],
    ids=str,
)  # fmt: skip
def test_writes_of_other_origins_are_refused(page: Page, headers: dict[str, str]) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    before = list(page.store.revisions())
    ann.headers.update(headers)
    for method, path in (("PUT", "1/spans/s1"), ("POST", "next"), ("POST", "1/done"), ("POST", "1/release")):
        assert ann.request(method, f"/api/items/{path}", json=sent()).status_code == 403
    assert list(page.store.revisions()) == before


def test_a_write_without_an_origin_needs_the_browsers_word(page: Page) -> None:
    ann = page.client()
    ann.headers.pop("origin")
    assert ann.post("/api/items/next", json={}).status_code == 403
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 403), ("same-origin", 200)):
        assert ann.post("/api/items/next", json={}, headers={"sec-fetch-site": site}).status_code == status
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)):
        assert ann.get("/api/items/1", headers={"sec-fetch-site": site}).status_code == status
    assert ann.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8347", "127.0.0.1.evil.example:8347", "localhost:8347@evil.example",
     "192.168.1.5:8347", "", "127.0.0.1:8347/x", "[::1", "127.0.0.1:port"],
)  # fmt: skip
def test_other_hosts_are_refused(page: Page, host: str) -> None:
    ann = page.client()
    for path in ("/", "/api/session", "/static/page.js", page.links["ann"].removeprefix(HOST)):
        assert ann.get(path, headers={"host": host}).status_code == 403


def test_a_tunnel_may_have_a_port_of_its_own(page: Page) -> None:
    ann = page.client()
    ann.headers.update({"host": "localhost:9000", "origin": "http://localhost:9000"})
    assert ann.post("/api/items/next", json={}).status_code == 200
    ann.headers["origin"] = HOST
    assert ann.post("/api/items/next", json={}).status_code == 403


def test_addresses_of_servers() -> None:
    local = Address("127.0.0.1", 8347)
    assert [local.allows_host(f"{host}:8347") for host in ("127.0.0.1", "LOCALHOST", "[::1]", "10.0.0.3", "lab")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    network = Address("0.0.0.0", 8347)
    assert [network.allows_host(f"{host}:8347") for host in ("10.0.0.3", "[fe80::1]", "lab")] == [True, True, False]
    assert (network.url, network.local, local.local) == ("http://127.0.0.1:8347", False, True)
    named = Address("lab", 80)
    assert [named.allows_host(host) for host in ("lab", "LAB:80", "other")] == [True, True, False]
    public = Address("127.0.0.1", 8347, "https://annotate.example.org")
    assert public.allows_host("annotate.example.org")
    assert public.allows_origin("https://annotate.example.org", "127.0.0.1:8347")
    assert not public.allows_origin("http://annotate.example.org", "127.0.0.1:8347")
    assert (public.url, Address("::1", 1).url) == ("https://annotate.example.org", "http://[::1]:1")


def test_a_page_behind_a_proxy_gets_a_secure_cookie(page: Page) -> None:
    public = Address("127.0.0.1", 8347, "https://annotate.example.org")
    app = application(page.store, Sessions(page.store.token_hashes(), "c"), public)
    client = TestClient(app, base_url="https://annotate.example.org", follow_redirects=False)
    entered = client.get(page.links["ann"].removeprefix(HOST))
    assert "Secure" in entered.headers["set-cookie"].split("; ")
    client.headers["x-session"] = kept_by_page(entered)
    assert (
        client.post("/api/items/next", json={}, headers={"origin": "https://annotate.example.org"}).status_code == 200
    )
    assert client.post("/api/items/next", json={}, headers={"origin": "http://annotate.example.org"}).status_code == 403


def test_every_response_has_the_security_headers_and_is_not_cached(page: Page) -> None:
    ann = page.client()
    answers = [
        ann.get(path) for path in ("/", "/static/page.js", "/static/none", "/api/session", "/api/items/99", "/nowhere")
    ]
    answers += [
        page.stranger().get("/api/session"),
        ann.get("/", headers={"host": "evil"}),
        ann.post("/api/items/next", content=b"{"),
    ]
    assert {answer.status_code for answer in answers} == {200, 404, 401, 403, 422}
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = answers[0].headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_files_of_the_page(page: Page) -> None:
    stranger = page.stranger()
    assert stranger.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert stranger.get("/static/page.js").headers["content-type"] == "text/javascript; charset=utf-8"
    for name in ("notes.txt", "..%2Fpage.sqlite", "%2e%2e/page.sqlite", "", "page.js/"):
        assert stranger.get(f"/static/{name}").status_code in (401, 404)


def test_bodies_have_a_limit(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    large = ann.put("/api/items/1/spans/s1", content=b" " * (LARGEST_BODY + 1))
    assert (large.status_code, large.json()["error"]) == (413, "the request is larger than 8 MiB")

    def parts() -> Iterator[bytes]:  # without a Content-Length
        for _ in range(LARGEST_BODY // 2**20 + 1):
            yield b" " * 2**20

    assert ann.put("/api/items/1/spans/s1", content=parts()).status_code == 413
    assert page.stranger().put("/", content=b"x").status_code == 405


async def never() -> dict[str, Any]:
    raise AssertionError("the body was read")


async def left() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def asked(page: Page, client: TestClient, receive: Any) -> list[int]:
    """What a write of this client is answered with, whose body comes from `receive`."""
    answers: list[int] = []

    async def send(message: Any) -> None:
        answers.extend([message["status"]] if message["type"] == "http.response.start" else [])

    headers = {"host": "127.0.0.1:8347", "origin": HOST, "x-session": client.headers.get("x-session", "")}
    headers["cookie"] = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    scope = {"type": "http", "path": "/api/items/next", "method": "POST", "query_string": b""}
    asyncio.run(page.app(scope | {"headers": [(n.encode(), v.encode()) for n, v in headers.items()]}, receive, send))
    return answers


def test_a_body_is_read_with_a_session_alone(page: Page) -> None:
    assert asked(page, page.stranger(), never) == [401]
    with pytest.raises(AssertionError, match="the body was read"):
        asked(page, page.client(), never)


def test_a_client_that_leaves_in_the_middle_of_a_request_is_no_error(page: Page) -> None:
    before = list(page.store.revisions())
    assert asked(page, page.client(), left) == [200], "sent to nobody"
    assert list(page.store.revisions()) == before
    assert page.store.progress("ann").started == 0


def test_a_full_disk_and_a_locked_store_are_answered_and_lose_nothing(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    with page.store._reading() as database:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages + 20}")
        database.execute("PRAGMA busy_timeout = 50")
    statuses = [
        ann.put(
            f"/api/items/1/spans/s{number}", json=sent(number, number + 1, id=f"s{number}", note="x" * 9000)
        ).status_code
        for number in range(40)
    ]
    assert set(statuses) == {200, 507}
    with page.store._reading() as database:
        database.execute("PRAGMA max_page_count = 100000")
    other = sqlite3.connect(page.store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert ann.put("/api/items/1/spans/late", json=sent(40, 42, id="late")).status_code == 503
    assert ann.get("/api/session").status_code == 200, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert ann.put("/api/items/1/spans/late", json=sent(40, 42, id="late")).status_code == 200
    assert len(ann.get("/api/items/1").json()["spans"]) == statuses.count(200) + 1


def test_the_same_mark_twice_is_refused(page: Page) -> None:
    ann = page.client()
    ann.post("/api/items/next", json={})
    assert ann.put("/api/items/1/spans/s1", json=sent()).json() == {"version": 1}
    assert ann.put("/api/items/1/spans/s1", json=sent()).json() == {"version": 1}, "it is only sent again"
    refused = ann.put("/api/items/1/spans/s2", json=sent(id="s2", note="again"))
    assert (refused.status_code, refused.json()["error"]) == (
        422,
        "this passage has the same mark already: change that one",
    )
    for number, other in enumerate([sent(4, 9), sent(label=1, reasons=["fact"]), sent(place=1), sent(deleted=True)]):
        assert ann.put(f"/api/items/1/spans/o{number}", json=other | {"id": f"o{number}"}).status_code == 200
    assert ann.put("/api/items/1/spans/o3", json=sent(id="o3", base=1)).status_code == 422, "nor does it come back"
    assert ann.put("/api/items/1/spans/s1", json=sent(base=1, deleted=True)).json() == {"version": 2}
    assert ann.put("/api/items/1/spans/o3", json=sent(id="o3", base=1)).json() == {"version": 2}
    ben = page.client("ben")
    ben.get("/api/items/2")
    assert ben.put("/api/items/2/spans/s1", json=sent()).status_code == 200


def test_tokens_are_compared_with_every_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {name: access.new_token() for name in ("ann", "ben", "cleo")}
    sessions = Sessions({name: access.token_hash(token) for name, token in tokens.items()}, "c")
    compared = []
    compare = access.hmac.compare_digest
    monkeypatch.setattr(access.hmac, "compare_digest", lambda a, b: compared.append(b) or compare(a, b))
    assert [sessions.annotator(token) for token in tokens.values()] == list(tokens)
    assert sessions.annotator("x\udcff") is None
    assert compared == list(sessions.hashes.values()) * 4
