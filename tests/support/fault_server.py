"""A chat-completions endpoint on loopback that misbehaves on request (asyncio, standard library only).

    with FaultServer(plan=lambda prompt, attempt: "429" if attempt == 0 else "ok") as server:
        client = OpenAI(model="m", base_url=server.url, api_key_env=None)

`plan` says, for the last message of a request and how often it was asked before, what happens:
    "ok"          an answer ("echo: " + prompt, or what `answer` makes of it)
    "429", "500"  any status; 429 comes with retry-after-ms (`retry_after` seconds, or "429:0.5"); "429:word" has that error code
    "hang"        nothing, until the client goes away
    "late:0.3"    an answer after so many seconds
    "drip"        a line break every twentieth of a second, for three seconds
    "cut"         the connection is closed before an answer; "cut-body" in the middle of one
    "empty"       an answer without text; "no-body" a 200 without a body
    "truncated"   finish_reason length; "malformed" a 200 with half a JSON; "no-choices" JSON that is no completion
    "refuse-schema" 400 when the request has a response_format, else ok; "refuse-schema:500" with so many words before the reason
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from patience import HUNG

Plan = Callable[[str, int], str]


class FaultServer:
    redirect = ""
    """Where plan "307" leads."""
    """See above. What it saw: `asked`, `answered` (complete answers handed to a client that was still there), `seen`,
    `connections`; `open` are those that are open now."""

    def __init__(
        self,
        plan: Plan = lambda prompt, attempt: "ok",
        *,
        latency: float = 0.0,
        retry_after: float = 0.05,
        answer: Callable[[str, dict[str, Any]], str] = lambda prompt, body: f"echo: {prompt}",
        usage: tuple[int, int] | None = (10, 5),
        port: int = 0,
    ) -> None:
        self.plan, self.latency, self.retry_after, self.answer, self.usage = plan, latency, retry_after, answer, usage
        self.port = port
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.seen: list[dict[str, Any]] = []
        """Each request: "time", "headers", "body"."""
        self.connections = 0
        self.open = 0
        self.flying = 0
        self.most_flying = 0
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> FaultServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(HUNG)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HUNG)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while (request := await _read(reader)) is not None:
                self.flying += 1
                self.most_flying = max(self.most_flying, self.flying)
                try:
                    if not await self._serve_one(*request, reader, writer):
                        break
                finally:
                    self.flying -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _serve_one(
        self,
        headers: dict[str, str],
        body: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; False closes the connection."""
        prompt = body["messages"][-1]["content"]
        self.seen.append({"time": time.monotonic(), "headers": headers, "body": body})
        what, _, number = self.plan(prompt, self.asked[prompt]).partition(":")
        self.asked[prompt] += 1
        if self.latency:
            await asyncio.sleep(self.latency)
        if what == "hang":
            await reader.read(1)  # ends when the client goes away
            return False
        if what == "drip":
            writer.write(_head(200, 60, {}))
            for _ in range(60):
                writer.write(b"\n")
                await writer.drain()
                await asyncio.sleep(0.05)
            return False
        if what == "cut":
            return False
        if what == "refuse-schema":
            if "response_format" in body:
                said = "so " * int(number or 0) + "response_format is not supported here"
                return await _send(writer, 400, {"error": {"message": said}})
            what = "ok"
        if what.isdigit():
            code = number if number.isidentifier() else None
            wait = self.retry_after if code or not number else float(number)
            extra = {"retry-after-ms": str(wait * 1000)} if what == "429" else {}
            extra |= {"location": self.redirect} if what == "307" else {}
            said = {"error": {"message": f"no: {headers.get('authorization', '')}", "code": code}}
            return await _send(writer, int(what), said, extra)
        if what == "no-body":
            return await _send(writer, 200, b"")
        if what == "malformed":
            return await _send(writer, 200, b'{"choices": [{"message": {"content": "ha')
        if what == "no-choices":
            return await _send(writer, 200, {"choices": []})
        if what == "late":
            await asyncio.sleep(float(number))
        reply = self._completion(prompt, body, what)
        if what == "cut-body":
            text = json.dumps(reply).encode()
            writer.write(_head(200, len(text), {}) + text[: len(text) // 2])
            await writer.drain()
            return False
        if writer.is_closing() or reader.at_eof():
            return False
        await _send(writer, 200, reply)
        if what != "empty":
            self.answered[prompt] += 1
        return True

    def _completion(self, prompt: str, body: dict[str, Any], what: str) -> dict[str, Any]:
        text = "" if what == "empty" else self.answer(prompt, body)
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "length" if what == "truncated" else "stop",
        }
        if body.get("logprobs"):
            top = [{"token": "A", "logprob": -0.1, "bytes": None}, {"token": "B", "logprob": -2.5, "bytes": None}]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top[: body["top_logprobs"]]}]}
        reply: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"]}
        reply["choices"] = [choice]
        if self.usage is not None:
            given, made = self.usage
            reply["usage"] = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
        return reply


async def _read(reader: asyncio.StreamReader) -> tuple[dict[str, str], dict[str, Any]] | None:
    """Headers and JSON body of the next request; None when the client is gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return headers, json.loads(content)


def _head(status: int, length: int, extra: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in extra.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes | dict[str, Any], extra: dict[str, str] | None = None
) -> bool:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(_head(status, len(content), extra or {}) + content)
    await writer.drain()
    return True
