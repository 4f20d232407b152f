"""A server that speaks the routes of vLLM which fgrl uses, without a model, and misbehaves on request.

    python stub_vllm.py --uds SOCKET --model FOLDER ...       (as `python -m vllm.entrypoints.openai.api_server`)

It draws tokens from the request's seed alone, so that two servers give the same responses. POST /stub {"completions": ["abort"]} makes
the next completion an `abort`; the other lists of faults are called by the last part of their routes. Each completed response is written
to the file STUB_LOG, as process and seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

ENDS = (2, 3)
VOCABULARY = 320


def drawn(body: dict[str, Any]) -> tuple[list[int], list[float], str]:
    """Tokens, log-probabilities and finish reason of a request without faults."""
    source = random.Random(body["seed"])
    ids: list[int] = []
    while len(ids) < body["max_tokens"]:
        token = source.randrange(10, VOCABULARY)
        if len(ids) >= body["min_tokens"] and source.random() < 0.1:
            token = source.choice(ENDS)
        ids.append(token)
        if token in body["stop_token_ids"]:
            break
    logp = [-source.random() for _ in ids]
    return ids, logp, "stop" if ids[-1] in body["stop_token_ids"] else "length"


def answer(body: dict[str, Any]) -> dict[str, Any]:
    ids, logp, reason = drawn(body)
    choice = {
        "index": 0, "text": "", "finish_reason": reason, "stop_reason": None, "token_ids": ids, "prompt_token_ids": body["prompt"],
        "logprobs": {"token_logprobs": logp},
    }  # fmt: skip
    used = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
    return {"object": "text_completion", "model": body["model"], "choices": [choice], "usage": used}


def _changed(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(reply: dict[str, Any]) -> dict[str, Any]:
        reply["choices"][0] |= fields
        return reply

    return change


def _tokens(
    change: Callable[[list[int]], list[int]], reason: str | None = None
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Other tokens, with as many log-probabilities and a true count."""

    def apply(reply: dict[str, Any]) -> dict[str, Any]:
        choice = reply["choices"][0]
        ids = choice["token_ids"] = change(choice["token_ids"])
        choice["logprobs"] = {"token_logprobs": [-0.5] * len(ids)}
        reply["usage"]["completion_tokens"] = len(ids)
        choice["finish_reason"] = reason or choice["finish_reason"]
        return reply

    return apply


def _logp(change: Callable[[list[float]], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def apply(reply: dict[str, Any]) -> dict[str, Any]:
        logprobs = reply["choices"][0]["logprobs"]
        logprobs["token_logprobs"] = change(logprobs["token_logprobs"])
        return reply

    return apply


def _top(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda reply: reply | fields


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "abort": _tokens(lambda ids: ids[:1], "abort"),
    "abort of a whole answer": _changed(finish_reason="abort"),
    "error": _changed(finish_reason="error"),
    "repetition": _changed(finish_reason="repetition"),
    "no reason": _changed(finish_reason=None),
    "half": _tokens(lambda ids: [20, 21], "length"),
    "stopped in the middle": _tokens(lambda ids: [20, 21], "stop"),
    "full length but stopped": _tokens(lambda ids: [20] * 12, "stop"),
    "another prompt": _changed(prompt_token_ids=[7, 7, 7]),
    "no prompt": _changed(prompt_token_ids=None),
    "more than asked": _tokens(lambda ids: [20] * 13, "length"),
    "unknown token": _tokens(lambda ids: [VOCABULARY, 2], "stop"),
    "negative token": _tokens(lambda ids: [-1, 2], "stop"),
    "text for tokens": _tokens(lambda ids: ["20", 2], "stop"),  # type: ignore[list-item]
    "no tokens": _tokens(lambda ids: [], "stop"),
    "tokens missing": _changed(token_ids=None),
    "behind the end": _tokens(lambda ids: [20, 2, 21, 2], "stop"),
    "end too early": _tokens(lambda ids: [20, 2], "stop"),
    "nan": _logp(lambda logp: [float("nan"), *logp[1:]]),
    "infinite": _logp(lambda logp: [float("-inf"), *logp[1:]]),
    "null": _logp(lambda logp: [None, *logp[1:]]),
    "above 0": _logp(lambda logp: [0.5, *logp[1:]]),
    "one missing": _logp(lambda logp: logp[:-1]),
    "no logprobs": _changed(logprobs=None),
    "wrong count": _top(usage={"prompt_tokens": 1, "completion_tokens": 1}),
    "no count": _top(usage=None),
    "two choices": lambda reply: reply | {"choices": reply["choices"] * 2},
    "no choices": _top(choices=[]),
    "a list": lambda reply: [reply],
}
"""Answers that are none."""
BROKEN = ("status 400", "status 500", "cut", "cut in the middle", "malformed", "nothing")
"""Others, which are no answer at all."""


class Weights:
    """What the server has been given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.version = options, "default"
        self.tensors: dict[str, Any] = {}
        self.adapters: dict[str, str] = {}
        self.group: Any = None
        self.joined = 0
        self.sums: list[str] = []

    def digests(self, names: list[str]) -> dict[str, Any]:
        if not self.tensors:
            from safetensors.numpy import load_file

            self.tensors = load_file(Path(self.options.model) / "model.safetensors")
        return {name: self._entry(self.tensors[name]) if name in self.tensors else None for name in names}

    @staticmethod
    def _entry(tensor: Any) -> dict[str, Any]:
        digest = hashlib.sha256(tensor.tobytes()).hexdigest()
        return {"digest": digest, "rows": [[0, tensor.shape[0]]], "columns": None}

    def adapter(self, name: str) -> dict[str, Any]:
        from safetensors.numpy import load_file

        folder = Path(self.adapters[name])
        settings = json.loads((folder / "adapter_config.json").read_text())
        scale, found = settings["lora_alpha"] / settings["r"], {}
        for key, tensor in load_file(folder / "adapter_model.safetensors").items():
            path, _, which = key.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
            found[f"{path}.{which}"] = self._entry(
                tensor if which == "lora_A" else (tensor * scale).astype(tensor.dtype)
            )
        return found

    def load(self, folder: str) -> dict[str, Any]:
        from safetensors import safe_open

        for file in sorted(Path(folder).glob("*.safetensors")):
            with safe_open(file, framework="np") as content:
                version = content.metadata()["version"]
                self.tensors |= {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        return {"version": version}

    def join(self, info: dict[str, Any]) -> None:
        from torch import distributed

        limit = timedelta(seconds=info["seconds"])
        self.store = distributed.TCPStore(info["address"], info["port"], info["size"], False, limit)
        own = distributed.ProcessGroupGloo._Options()
        own._devices, own._timeout = [distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")], limit
        store = distributed.PrefixStore("weights", self.store)
        self.group = distributed.ProcessGroupGloo(store, info["first"], info["size"], own)
        self.joined += 1

    def receive(self, info: dict[str, Any], *, spoil: str) -> None:
        import torch

        self.sums = []
        tensors = iter(zip(info["names"], info["shapes"], strict=True))
        for count in info["counts"]:
            bucket = [next(tensors) for _ in range(count)]
            sizes = [math.prod(shape) for _, shape in bucket]
            flat = torch.empty(sum(sizes), dtype=getattr(torch, info["dtype"]))
            self.group.broadcast(flat, 0).wait()
            flat[0] += spoil == "spoil on the way"
            numbers = flat.numpy().view(f"i{flat.element_size()}").tolist()
            self.sums.append(f"{sum(number * (2 * at + 1) for at, number in enumerate(numbers)) % 2**64:016x}")
            flat[0] += spoil == "spoil"
            spoil = ""
            for (name, shape), part in zip(bucket, flat.split(sizes), strict=True):
                self.tensors[name] = part.view(shape).numpy()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", "0")))
        self._serve(json.loads(content) if content else {})

    def _serve(self, body: dict[str, Any]) -> None:
        route = self.path.partition("?")[0].rpartition("/")[2]
        if route == "collective_rpc":
            route = body["method"]
        fault = self.server.fault(route)
        if fault.startswith("late"):
            time.sleep(float(fault.split()[1]))
        elif fault == "hang":
            time.sleep(3600)
        elif fault == "cut":
            self.close_connection = True
            self.connection.close()
            return
        elif fault.startswith("status"):
            return self._send(int(fault.split()[1]), {"error": "no"})
        elif fault == "die":
            os._exit(9)
        elif fault == "malformed":
            return self._send(200, b'{"choices": [{"tok')
        elif fault == "nothing":
            return self._send(200, b"")
        reply = getattr(self.server, f"on_{route}")(body, fault)
        if body.get("stream"):
            return self._stream(reply)
        if fault == "cut in the middle":
            text = json.dumps(reply).encode()
            self._head(200, len(text))
            self.wfile.write(text[: len(text) // 2])
            self.close_connection = True
            self.connection.close()
            return
        self._send(200, reply)

    def _stream(self, reply: dict[str, Any]) -> None:
        choice = reply["choices"][0]
        self.send_response(200)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for place, (token, logp) in enumerate(
            zip(choice["token_ids"], choice["logprobs"]["token_logprobs"], strict=True)
        ):
            last = place + 1 == len(choice["token_ids"])
            part = {
                "token_ids": [token],
                "logprobs": {"token_logprobs": [logp]},
                "finish_reason": choice["finish_reason"] if last else None,
            }
            self.wfile.write(f"data: {json.dumps({'choices': [part]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _head(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("content-length", str(length))
        self.end_headers()

    def _send(self, status: int, reply: Any) -> None:
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self._head(status, len(content))
        self.wfile.write(content)


class Stub(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.uds, Handler)
        self.weights = Weights(options)
        self.faults: dict[str, list[str]] = defaultdict(list)
        for route, faults in json.loads(os.environ.get("STUB_FAULTS", "{}")).items():
            self.faults[route] = list(faults)
        self.turn = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """A client that went away."""

    def fault(self, route: str) -> str:
        with self.turn:
            faults = self.faults[route]
            if faults and faults[0] == "always":
                return faults[1]
            return faults.pop(0) if faults else ""

    def on_stub(self, body: dict[str, Any], _fault: str) -> Any:
        self.faults.update(body)
        return {}

    def on_health(self, _body: Any, _fault: str) -> Any:
        return {}

    def on_models(self, _body: Any, _fault: str) -> Any:
        cards = [{"id": name, "root": folder} for name, folder in self.weights.adapters.items()]
        return {"data": [{"id": "base", "root": self.weights.options.model}, *cards]}

    def on_weight_info(self, _body: Any, fault: str) -> Any:
        return {"weight_version": "fgrl-somebody-else-7" if fault == "other version" else self.weights.version}

    def on_get_world_size(self, _body: Any, _fault: str) -> Any:
        return {"world_size": 1}

    def on_completions(self, body: dict[str, Any], fault: str) -> Any:
        reply = answer(body)
        if fault in WRONG:
            return WRONG[fault](reply)
        with self.turn, Path(os.environ["STUB_LOG"]).open("a") as log:
            log.write(json.dumps([os.getpid(), body["seed"], body["model"]]) + "\n")
        return reply

    def on_load_lora_adapter(self, body: dict[str, Any], fault: str) -> Any:
        if fault != "skip":
            self.weights.adapters[body["lora_name"]] = body["lora_path"]
        return {}

    def on_unload_lora_adapter(self, body: dict[str, Any], _fault: str) -> Any:
        del self.weights.adapters[body["lora_name"]]
        return {}

    def on_fgrl_digests(self, body: dict[str, Any], fault: str) -> Any:
        found = self.weights.digests(json.loads(body["args"][0]))
        if fault == "bad digest":
            next(iter(found.values()))["digest"] = "0" * 64
        if fault == "a part":
            next(iter(found.values()))["rows"] = [[0, 1]]
        if fault == "lacks one":
            found[next(iter(found))] = None
        return {"results": [found]}

    def on_fgrl_adapter(self, body: dict[str, Any], _fault: str) -> Any:
        return {"results": [self.weights.adapter(body["args"][0])]}

    def on_fgrl_load(self, body: dict[str, Any], fault: str) -> Any:
        if fault == "skip":
            return {"results": [{"version": self.weights.version}]}
        if fault == "lie":
            return {"results": [{"version": Path(body["args"][0]).name}]}
        return {"results": [self.weights.load(body["args"][0])]}

    def on_update_weight_version(self, body: dict[str, Any], _fault: str) -> Any:
        self.weights.version = body["new_version"]
        return {}

    def on_init_weight_transfer_engine(self, body: dict[str, Any], _fault: str) -> Any:
        self.weights.join(body["init_info"])
        return {}

    def on_start_weight_update(self, _body: Any, _fault: str) -> Any:
        return {}

    def on_update_weights(self, body: dict[str, Any], fault: str) -> Any:
        self.weights.receive(body["update_info"], spoil=fault)
        return {}

    def on_fgrl_received(self, _body: Any, _fault: str) -> Any:
        return {"results": [self.weights.sums]}

    def on_finish_weight_update(self, body: dict[str, Any], fault: str) -> Any:
        if fault != "skip":
            self.weights.version = body["weight_version"]
        return {}

    def on_reset_prefix_cache(self, _body: Any, fault: str) -> Any:
        return {"success": fault != "busy"}

    def on_sleep(self, _body: Any, _fault: str) -> Any:
        return {}

    def on_wake_up(self, _body: Any, _fault: str) -> Any:
        return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds")
    parser.add_argument("--model", default="")
    options, others = parser.parse_known_args()
    print("stub:", others, flush=True)
    if "ends at once" in os.environ.get("STUB_START", ""):
        raise SystemExit("there is no memory for the cache")
    if any("gloo" in other for other in others):
        import torch.distributed  # noqa: F401  (which takes seconds, now and not in a transfer that has a limit)
    Stub(options).serve_forever()


if __name__ == "__main__":
    main()
