"""Requests a second through the `openai` client against a bare loop over the openai library, on one endpoint.

The endpoint is the tests' loopback server in a process of its own, answering after some milliseconds. The bare loop is what
one writes in ten lines: `AsyncOpenAI`, a semaphore, `gather`; it stores nothing, counts nothing and limits nothing. The two
take turns; medians are compared.

    python benchmarks/client_throughput.py --requests 2000 --concurrency 32 --latency 0.02 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import openai

from fgrl.components.clients.openai import OpenAI
from fgrl.experiments.pipeline.run import Run
from fgrl.types import Message, Request

TESTS = Path(__file__).resolve().parents[1] / "tests" / "support"
SERVER = """
import sys
sys.path.insert(0, {tests!r})
from fault_server import FaultServer
with FaultServer(latency={latency}) as server:
    server.seen = type("Nothing", (), {{"append": lambda self, item: None}})()
    print(server.url, flush=True)
    sys.stdin.read()
"""


def bare(url: str, prompts: list[str], concurrency: int) -> float:
    """Seconds of the bare loop."""

    async def loop() -> None:
        gate = asyncio.Semaphore(concurrency)
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=5) as client:

            async def one(prompt: str) -> str | None:
                async with gate:
                    messages = [{"role": "user", "content": prompt}]
                    answer = await client.chat.completions.create(
                        model="m", messages=messages, temperature=0.0, max_tokens=1024
                    )
                    return answer.choices[0].message.content

            await asyncio.gather(*(one(prompt) for prompt in prompts))

    began = time.perf_counter()
    asyncio.run(loop())
    return time.perf_counter() - began


def ours(url: str, prompts: list[str], concurrency: int) -> float:
    """Seconds of the client, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "stage"
        stage.mkdir()
        began = time.perf_counter()
        client = OpenAI(model="m", base_url=url, api_key_env=None, concurrency=concurrency)
        client.setup(Run("bench", stage, cache=Path(folder) / "cache"))
        answers = client.complete([Request(messages=[Message(role="user", content=prompt)]) for prompt in prompts])
        seconds = time.perf_counter() - began
        assert all(answer.error is None for answer in answers)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that the endpoint takes for an answer")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    code = SERVER.format(tests=str(TESTS), latency=options.latency)
    server = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    prompts = [f"question {number}" for number in range(options.requests)]
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    try:
        for which in (bare, ours):  # connections, imports, code
            which(url, prompts[:100], options.concurrency)
        for round_ in range(options.rounds):
            order = (bare, ours) if round_ % 2 == 0 else (ours, bare)
            for which in order:
                rates[which.__name__].append(options.requests / which(url, prompts, options.concurrency))
            print(f"round {round_ + 1}: " + "  ".join(f"{name} {found[-1]:.0f}/s" for name, found in rates.items()))
    finally:
        server.stdin.close()
        server.wait(10)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    print(
        f"{options.requests} requests at concurrency {options.concurrency}, latency {options.latency * 1000:.0f} ms, "
        f"medians of {options.rounds}: bare {middle['bare']:.0f}/s, ours {middle['ours']:.0f}/s, "
        f"ratio {middle['ours'] / middle['bare']:.2f}"
    )


if __name__ == "__main__":
    main()
