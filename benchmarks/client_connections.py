"""Requests a second through the `openai` client to an endpoint with TLS on this machine, with connections that are kept and with a new
one for each request.

The endpoint is a process of its own with a certificate of this script. It answers after some milliseconds, and either keeps a
connection or says `Connection: close` with each answer, which is what every request cost in fgrl before connections were kept. In a
batch all requests are given at once; one by one, as many threads as requests at a time ask one question after the other, as
conversations do. The cases take turns; medians are printed.

    python benchmarks/client_connections.py --requests 1000 --latency 0.02 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fgrl.components.clients.openai import OpenAI
from fgrl.experiments.pipeline.run import Run
from fgrl.types import Completion, Message, Request

WAYS = {"close": "a new connection each", "keep": "kept connections"}
ANSWER = json.dumps({
    "id": "c", "object": "chat.completion", "created": 0, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
}).encode()  # fmt: skip


def serve(certificate: str, way: str, latency: float) -> None:
    """Answer until this process is ended; the first line printed is the port."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(ANSWER)}\r\n"
    whole = (head + ("connection: close\r\n" if way == "close" else "") + "\r\n").encode() + ANSWER

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while lines := (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n"):
                length = next(line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                await asyncio.sleep(latency)
                writer.write(whole)
                await writer.drain()
                if way == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(main())


def rate(url: str, at_once: int, count: int, folder: Path, *, batch: bool) -> tuple[float, float]:
    """Requests a second, and milliseconds of this process's CPU for each, with an empty cache."""
    stage = Path(tempfile.mkdtemp(dir=folder))
    run = Run("bench", stage, cache=stage / "cache")
    client = OpenAI(model="m", base_url=url, api_key_env=None, concurrency=at_once)
    client.setup(run)
    questions = [Request(messages=[Message(role="user", content=f"question {number}")]) for number in range(count)]

    def single(question: Request) -> Completion:
        return client.complete_alone([question])[0]

    began, worked = time.perf_counter(), time.process_time()
    if batch:
        answers = client.complete(questions)
    else:
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(single, questions))
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    run.close()
    assert all(answer.error is None for answer in answers)
    return count / seconds, 1000 * worked / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that the endpoint takes for an answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=2, metavar=("CERTIFICATE", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve, options.latency)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        certificate = folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(certificate), "-out", str(folder / "public.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        certificate.write_text(certificate.read_text() + (folder / "public.pem").read_text())
        os.environ["SSL_CERT_FILE"] = str(folder / "public.pem")
        own = [sys.executable, __file__, "--latency", str(options.latency), "--serve", str(certificate)]
        servers = {way: subprocess.Popen([*own, way], stdout=subprocess.PIPE, text=True) for way in WAYS}
        try:
            urls = {
                way: f"https://127.0.0.1:{server.stdout.readline().strip()}/v1"
                for way, server in servers.items()
                if server.stdout
            }
            measure(urls, options.at_once, options.requests, options.rounds, folder)
        finally:
            for server in servers.values():
                server.terminate()
                server.wait(10)


def measure(urls: dict[str, str], at_once: list[int], count: int, rounds: int, folder: Path) -> None:
    """Measure all cases in turn, and print a table of medians."""
    cases = [(batch, most, way) for batch in (True, False) for most in at_once for way in WAYS]
    found: dict[tuple[bool, int, str], list[tuple[float, float]]] = {case: [] for case in cases}
    rate(urls["keep"], at_once[0], 10, folder, batch=True)  # imports
    for _ in range(rounds):
        for batch, most, way in cases:
            found[batch, most, way].append(rate(urls[way], most, count, folder, batch=batch))
    print(f"requests a second, and ms of the client's CPU for each: medians of {rounds} rounds of {count} requests")
    print(f"{'asked':<10} {'at once':>7}  {'connections':<21} {'requests/s':>10} {'CPU':>6}")
    for batch, most, way in cases:
        rates, worked = (statistics.median(numbers) for numbers in zip(*found[batch, most, way], strict=True))
        print(
            f"{'in a batch' if batch else 'one by one':<10} {most:>7}  {WAYS[way]:<21} {rates:>10,.0f} {worked:>6.1f}"
        )


if __name__ == "__main__":
    main()
