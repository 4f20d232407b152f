"""As much of W&B's server as an agent and its runs need, on loopback: a sweep whose points it hands out one at a time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

ENTITY, PROJECT, SWEEP = "somebody", "small", "abcd1234"


class StubWandb:
    """Answers W&B's GraphQL and file-stream requests, and keeps what it gets.

    Each heartbeat of an agent that runs nothing gets the next point; after the last one it gets "exit", which is W&B's word for a
    sweep that has ended.
    """

    def __init__(self, sweep: str, points: Sequence[Mapping[str, Any]], program: str = "fgrl") -> None:
        """sweep: the text of the sweep file."""
        self.sweep, self.program = sweep, program
        self._waiting = list(enumerate(points, start=1))
        self.asked: list[str] = []
        """Names of the GraphQL operations, in order."""
        self.runs: dict[str, dict[str, Any]] = {}
        """What `upsertBucket` said of each run, by its id."""
        self.streamed: dict[str, list[dict[str, Any]]] = {}
        """Bodies of the file stream of each run."""
        self.uploaded = ""
        """Content of the files that runs uploaded."""
        self.keys: set[str] = set()
        """`Authorization` headers."""
        self.refused: list[str] = []
        """Requests to which it has no answer."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> StubWandb:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def summary(self, run: str) -> dict[str, Any]:
        """The last summary that a run sent."""
        return dict(json.loads((self._lines(run, "wandb-summary.json") or ["{}"])[-1]))

    def history(self, run: str) -> list[dict[str, Any]]:
        """The rows that a run logged."""
        return [json.loads(line) for line in self._lines(run, "wandb-history.jsonl")]

    def _lines(self, run: str, file: str) -> list[str]:
        sent = [body["files"][file] for body in self.streamed[run] if file in body.get("files", {})]
        return [line for each in sent for line in each["content"]]

    def exit_code(self, run: str) -> int | None:
        return next((body["exitcode"] for body in reversed(self.streamed[run]) if body.get("complete")), None)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data of a GraphQL answer; None for an operation that it does not know."""
        operation = query.split("(")[0].split("{")[0].split()[-1]
        self.asked.append(operation)
        if operation == "Viewer":
            return {"viewer": {"id": "u", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}}
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "SweepWithRuns":
            return {"project": {"sweep": {"id": "s", "name": SWEEP, "config": self.sweep, "runs": {"edges": []}}}}
        if operation == "CreateAgent":
            return {"createAgent": {"agent": {"id": "agent"}}}
        if operation == "Heartbeat":
            running = json.loads(variables["runState"])
            return {
                "agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(self._commands(busy=bool(running)))}
            }
        if operation == "RunResumeStatus":
            model = {"id": "m", "name": PROJECT, "entity": {"id": "e", "name": ENTITY}}
            return {"model": {**model, "bucket": self._so_far(variables["name"])}}
        if operation == "UpsertBucket":
            return {"upsertBucket": {"bucket": self._run(variables), "inserted": True}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": variables["run"], "uploadHeaders": [], "files": files}}
        return None

    def _commands(self, *, busy: bool) -> list[dict[str, Any]]:
        if busy:
            return []
        if not self._waiting:
            return [{"type": "exit"}]
        number, point = self._waiting.pop(0)
        args = {name: {"value": value} for name, value in point.items()}
        return [{"type": "run", "run_id": f"point-{number}", "program": self.program, "args": args}]

    def _run(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        name = variables["name"]
        said = {key: value for key, value in variables.items() if value is not None}
        self.runs[name] = {**self.runs.get(name, {}), **said}
        project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": ENTITY}}
        shown = {"displayName": variables.get("displayName"), "description": None, "config": variables.get("config")}
        return {
            "id": f"id-{name}",
            "name": name,
            "sweepName": variables.get("sweep"),
            "historyLineCount": 0,
            "project": project,
        } | shown

    def _so_far(self, run: str) -> dict[str, Any] | None:
        """What a run that goes on gets back of itself; None for one that begins."""
        if run not in self.streamed:
            return None
        counts = {"historyLineCount": len(self.history(run)), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps([json.dumps(row) for row in self.history(run)[-1:]]), "eventsTail": "[]"}
        about = {"displayName": None, "tags": [], "notes": None, "wandbConfig": "{}"}
        sent = {"config": self.runs[run].get("config", "{}"), "summaryMetrics": json.dumps(self.summary(run))}
        return {"id": f"id-{run}", "name": run} | about | counts | tails | sent

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    content = gzip.decompress(content)
                stub.keys.add(self.headers.get("Authorization", ""))
                if self.path == "/graphql":
                    body = json.loads(content)
                    data = stub.answer(body["query"], body.get("variables") or {})
                    answer = {"errors": [{"message": "unknown"}]} if data is None else {"data": data}
                    self._send(answer, body["query"], data)
                elif self.path.endswith("/file_stream"):
                    stub.streamed.setdefault(self.path.split("/")[-2], []).append(json.loads(content))
                    self._send({}, self.path, {})
                else:  # what W&B's library says of itself, in a format of its own
                    self._send({}, self.path, {} if self.path.startswith("/sdk/") else None)

            def do_PUT(self) -> None:
                stub.uploaded += self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                self._send({}, self.path, {})

            def do_GET(self) -> None:
                self._send({}, self.path, None)

            def _send(self, answer: Any, what: str, known: Any) -> None:
                if known is None:
                    stub.refused.append(what)
                text = json.dumps(answer).encode()
                self.send_response(400 if known is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
