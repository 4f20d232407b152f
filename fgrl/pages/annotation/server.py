"""The annotation page's server: JSON over HTTP, for annotators with a session. Needs Starlette (`pip install
'fgrl[annotate]'`).

| request | body | answer |
|---|---|---|
| `GET /enter/TOKEN` | | starts a session and redirects to `/#session=...`; the page keeps it and sends it as `X-Session` |
| `GET /`, `GET /static/FILE` | | the page's own files, which need no session and have no data of the store |
| `GET /api/session` | | annotator, store, settings, progress `{done, started, remaining, total}` |
| `GET /api/items` | | `[{id, state: new, started or done, leased, cannot_judge, query, domain}]` of started, finished or leased items |
| `POST /api/items/next` | `{current: id or null}` | `{item}`, the whole item as below, now leased; null if nothing is left |
| `GET /api/items/ID` | | the item, which is leased if it is available |
| `PUT /api/items/ID/spans/SPAN` | a span with `id` and `base` | `{version}` |
| `PUT /api/items/ID/answers/PLACE` | `{base, body: {question: answer}}` | `{version}` |
| `PUT /api/items/ID/verdict` | `{base, body: {better: place or null, reason, deleted?: true}}` | `{version}` |
| `POST /api/items/ID/time` | `{id, seconds}` | `{seconds}`, the sum so far; the same id counts once |
| `POST /api/items/ID/done` | `{done}` | `{done, progress}`; 422 with `missing`, a list, if something is missing |
| `POST /api/items/ID/release` | | `{released: true}` |

An item: id, prompt (a text, or turns `{role, content}`), document, domain, order (places as shown), responses `[{place,
text}]` in that order, spans by id (`SpanBody` with id and version, including deleted spans), answers by place and
verdict as `{version, body}`, `suggested` (the page's suggestions by key), suggestions and cannot_judge as `{version,
body}`, done, seconds. Names of models, scores and other annotators' work are never sent.

`base` is the version that a write replaces, 0 for something new. 401: no session. 403: another origin or host, or an
item of another annotator. 404: no such address or item. 408: the request arrived too slowly. 409: there is a newer
version, `current`. 413: too large. 422: does not fit, with the reason in `error`. 503: another program writes to the
store. 507: the disk is full. A write that was not answered with a version may be sent again.

A manager has a session of another kind, which gives access only to `/api/manage/` (`fgrl.pages.annotation.managing`):

| request | body | answer |
|---|---|---|
| `GET /manage/TOKEN` | | starts a session, and redirects to `/manage#session=...` |
| `GET /api/manage/overview` | | annotators with their progress, items, tables of statistics |
| `GET /api/manage/items/ID` | | an item with the work of all annotators |
| `POST /api/manage/items/ID/reopen` | `{annotator}` | `{done: false}` |
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from fgrl.base.errors import DiskError, FgrlError
from fgrl.pages.annotation.access import Address, Sessions
from fgrl.pages.annotation.guard import Backend, Guard, no_session, read_body
from fgrl.pages.annotation.managing import overview, reviewed
from fgrl.pages.annotation.revisions import Kind, Refused, SpanBody, against, checked, in_words
from fgrl.pages.annotation.shown import about_item, about_work, in_a_list, in_answers
from fgrl.pages.annotation.store import Busy, Conflict, NotGiven, Store, UnknownItem

PAGE = Path(__file__).parent / "page"
"""Folder of the page's files."""
KINDS_OF_FILE = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png",
}  # fmt: skip
"""Content types of the files that are sent."""


CHANGED: dict[str, Kind] = {
    "spans": "span", "answers": "answers", "verdict": "verdict", "suggestions": "suggestion", "cannot_judge": "cannot_judge",
}  # fmt: skip
"""Kinds of revision that the page writes, by their name in addresses."""


class _Wanted(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Next(_Wanted):
    current: str | None = None


class _Span(SpanBody):
    id: str
    base: int = Field(ge=0)


class _Change(_Wanted):
    base: int = Field(ge=0)
    body: dict[str, Any]


class _Time(_Wanted):
    id: str
    seconds: float


class _Done(_Wanted):
    done: bool


class _Reopen(_Wanted):
    annotator: str


W = TypeVar("W", bound=BaseModel)


class Incomplete(Refused):
    """Refusal to finish an item that is not complete yet."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__("; ".join(missing))
        self.missing = missing


class Call:
    """One request of one annotator."""

    def __init__(self, store: Store, request: Request, body: bytes) -> None:
        self.store, self.body = store, body
        self.annotator: str = request.user.username
        self.parts = request.path_params

    @property
    def item(self) -> str:
        """Return the sample's id."""
        return self._item(self.parts["item"])

    def read(self, wanted: type[W]) -> W:
        """Return the body as this class. Raises `Refused`."""
        try:
            return wanted.model_validate_json(self.body or b"{}")
        except ValidationError as error:
            raise Refused(in_words(error)) from None

    # -- reading -------------------------------------------------------------------------------------------------------

    def session(self) -> dict[str, Any]:
        settings = self.store.settings.model_dump(mode="json")
        return {"annotator": self.annotator, "store": self.store.id, "settings": settings, "progress": self._progress()}

    def items(self) -> list[dict[str, Any]]:
        settings = self.store.settings
        return [
            {
                "id": str(listed.number), "state": listed.state, "leased": listed.leased,
                "cannot_judge": listed.cannot_judge, **in_a_list(self.store.sample(item), settings),
            }
            for item, listed in self.store.listing(self.annotator)
        ]  # fmt: skip

    def show(self) -> dict[str, Any]:
        return self._shown(self.item)

    def next(self) -> dict[str, Any]:
        current = self.read(_Next).current
        item = self.store.offer(self.annotator, None if current is None else self._item(current))
        return {"item": None if item is None else self._shown(item)}

    # -- writing -------------------------------------------------------------------------------------------------------

    def change(self) -> dict[str, Any]:
        kind, key = CHANGED.get(self.parts["what"]), self.parts.get("key", "")
        if kind is None:
            raise HTTPException(404, "Not Found")
        change: Any = self.read(_Span if kind == "span" else _Change)
        if kind == "span" and change.id != key:
            raise Refused(f"id: {change.id[:40]!r} is not the one in the address")
        given = change.model_dump(exclude={"id", "base"}) if kind == "span" else change.body
        sample, shown, settings = self.store.sample(self.item), self.store.shown(self.item), self.store.settings
        body = checked(kind, key, given, sample)
        place = body["place"] if kind == "span" else int(key) if kind == "answers" else shown[0]
        if place not in shown:
            raise Refused(f"place: the page shows no response {place} of this item")
        if kind == "suggestion" and key not in settings.suggestions(sample, shown):
            raise Refused(f"there is no suggestion {key[:40]!r}")
        if wrong := against(settings, kind, body, len(shown)):
            raise Refused(wrong)
        return self._saved(kind, key, body, change.base)

    def time(self) -> dict[str, Any]:
        spent = self.read(_Time)
        self._saved("time", spent.id, {"seconds": spent.seconds}, 0)
        return {"seconds": self.store.state(self.item, self.annotator).seconds}

    def done(self) -> dict[str, Any]:
        done = self.read(_Done).done
        if done and (missing := self._missing()):
            raise Incomplete(missing)
        self._saved("done", "", {"done": done}, None)
        return {"done": done, "progress": self._progress()}

    def release(self) -> dict[str, Any]:
        self.store.release(self.item, self.annotator)
        return {"released": True}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _item(self, number: str) -> str:
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise UnknownItem("there is no such item")
        return self.store.item_at(int(number))

    def _progress(self) -> dict[str, int]:
        return asdict(self.store.progress(self.annotator))

    def _saved(self, kind: Any, key: str, body: dict[str, Any], base: int | None) -> dict[str, Any]:
        return {"version": self.store.save(self.item, self.annotator, kind, key, body, base)}

    def _missing(self) -> list[str]:
        state, shown = self.store.state(self.item, self.annotator), self.store.shown(self.item)
        if state.unjudged is not None:
            return [] if state.unjudged.strip() else ["there is no comment that says why the item cannot be judged"]
        settings = self.store.settings
        suggestions = settings.suggestions(self.store.sample(self.item), shown)
        open_ones = sum(state.accepts(key) is None for key in suggestions)
        undecided = [f"{open_ones} suggestion{'s are' if open_ones > 1 else ' is'} neither accepted nor rejected"]
        verdict = None if state.verdict is None else (state.verdict.body["better"], state.verdict.body["reason"])
        return undecided * bool(open_ones) + settings.missing(
            [(span.body["place"], span.body["reasons"], span.body["note"]) for span in state.live_spans.values()],
            {shown.index(place): own.body for place, own in state.answers.items() if place in shown},
            verdict,
            len(shown),
        )

    def _shown(self, item: str) -> dict[str, Any]:
        state = self.store.open(item, self.annotator)
        sample, settings = self.store.sample(item), self.store.settings
        order = self.store.shown(item) if state.order is None else state.order
        return {
            "id": str(self.store.number_of(item)),
            **about_item(sample, settings),
            "order": order,
            "responses": [{"place": place, "text": sample.responses[place].text} for place in order],
            "suggested": settings.suggestions(sample, order),
            **about_work(state),
        }


class Managed(Call):
    """One request of a manager."""

    def overview(self) -> dict[str, Any]:
        return overview(self.store)

    def show(self) -> dict[str, Any]:
        return reviewed(self.store, self.item)

    def reopen(self) -> dict[str, Any]:
        """Reopen an item for an annotator who has finished it."""
        name = self.read(_Reopen).annotator
        if name not in self.store.annotators or not self.store.state(self.item, name).done:
            raise Refused(f"annotator: {name[:40]!r} has not finished this item")
        self.store.append(self.item, name, "done", "", {"done": False})
        return {"done": False}


def problem(error: Exception) -> tuple[int, dict[str, Any]] | None:
    """Return (status, answer) for an error that the client can react to, or None for a bug."""
    match error:
        case Conflict(current=current):
            return 409, {"error": str(error), "current": current and in_answers(current)}
        case Incomplete(missing=missing):
            return 422, {"error": str(error), "missing": missing}
        case Refused() | NotGiven():
            return 422 if isinstance(error, Refused) else 403, {"error": str(error)}
        case UnknownItem():
            return 404, {"error": "there is no such item"}
        case Busy():
            return 503, {"error": "another program is writing to the store: try again"}
        case DiskError():
            return 507, {"error": "nothing was saved: the disk of the server is full or cannot be written to"}
    return None


def application(
    store: Store, sessions: Sessions, address: Address, page: Path = PAGE, managers: Sessions | None = None
) -> Guard:
    """Return the server as an ASGI application. `page` is the folder of the page's files, which are read once.

    managers: sessions of the manager's page; None: there is no such page.
    """
    files = {
        file.name: (file.read_bytes(), KINDS_OF_FILE[file.suffix])
        for file in sorted(page.iterdir() if page.is_dir() else [])
        if file.suffix in KINDS_OF_FILE
    }

    def api(path: str, method: str, act: Callable[[Any], Any], call: type[Call] = Call) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_body(request)
            return _json(await run_in_threadpool(lambda: act(call(store, request, body))))

        return Route(f"/{path}", endpoint, methods=[method])

    def entrance(own: Sessions, home: str) -> Callable[[Request], Awaitable[Response]]:
        async def enter(request: Request) -> Response:
            whose = own.annotator(request.path_params["token"])
            if whose is None:
                return _json({"error": "this link is not valid (any more): ask for a new one"}, 401)
            secure = address.url.startswith("https:")
            cookie, kept = await run_in_threadpool(lambda: own.begin(whose, secure=secure))
            # what stands behind # reaches no server
            response = RedirectResponse(f"{home}#session={kept}", status_code=303)
            response.headers["set-cookie"] = cookie
            return response

        return enter

    async def static(request: Request) -> Response:
        name = request.path_params.get("file", "manage.html" if request.url.path == "/manage" else "index.html")
        if name not in files:
            raise HTTPException(404, "there is no such file")
        content, kind = files[name]
        return Response(content, headers={"content-type": kind})

    async def known_problem(_request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _json({"error": error.detail}, error.status_code)
        if isinstance(error, ClientDisconnect):
            return Response()  # nobody reads it
        known = problem(error)
        if known is None:
            raise error
        return _json(known[1], known[0])

    calls = [
        api("session", "GET", Call.session),
        api("items", "GET", Call.items),
        api("items/next", "POST", Call.next),
        api("items/{item}", "GET", Call.show),
        api("items/{item}/{what}", "PUT", Call.change),
        api("items/{item}/{what}/{key}", "PUT", Call.change),
        api("items/{item}/time", "POST", Call.time),
        api("items/{item}/done", "POST", Call.done),
        api("items/{item}/release", "POST", Call.release),
    ]
    manage = [
        api("overview", "GET", Managed.overview, Managed),
        api("items/{item}", "GET", Managed.show, Managed),
        api("items/{item}/reopen", "POST", Managed.reopen, Managed),
    ]

    def behind(own: Sessions, path: str, inside: list[Route]) -> Mount:
        session = Middleware(AuthenticationMiddleware, backend=Backend(own), on_error=no_session)
        return Mount(path, Router(inside, redirect_slashes=False), middleware=[session])

    routes: list[BaseRoute] = [
        Route("/", static, methods=["GET"]),
        Route("/static/{file}", static, methods=["GET"]),
        Route("/enter/{token}", entrance(sessions, "/"), methods=["GET"]),
    ]
    if managers is not None:
        routes += [
            Route("/manage", static, methods=["GET"]),
            Route("/manage/{token}", entrance(managers, "/manage"), methods=["GET"]),
            behind(managers, "/api/manage", manage),
        ]
    routes.append(behind(sessions, "/api", calls))
    app = Starlette(
        routes=routes, exception_handlers=dict.fromkeys((HTTPException, FgrlError, ClientDisconnect), known_problem)
    )
    app.router.redirect_slashes = False
    return Guard(app, address)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")
