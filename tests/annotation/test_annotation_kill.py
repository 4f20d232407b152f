"""The server is killed while people save: whatever they saw acknowledged is there, once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from annotation_clients import Client, ServerProcess, Work
from annotation_stores import samples
from patience import HUNG

from fgrl.pages.annotation.store import Store
from fgrl.types import Sample, read_jsonl, write_jsonl

pytest.importorskip("uvicorn", reason="needs uvicorn")


def killed(folder: Path, *, annotators: int, spans: int, kills: int, seed: int) -> None:
    """So many annotators mark so many spans each, and the server dies so often."""
    draw = random.Random(seed)
    file, store = folder / "samples.jsonl", folder / "page.sqlite"
    write_jsonl(file, samples(12))
    names = [f"annotator{number}" for number in range(annotators)]
    server = ServerProcess(store, file, "--annotators", ",".join(names), "--overlap", "12", "--settings", "retrieval")
    work = Work(spans)
    threads = [
        threading.Thread(
            target=work.annotate, args=(name, Client(server.port, server.links[name]), seed * 100 + number)
        )
        for number, name in enumerate(names)
    ]
    in_flight = []
    try:
        for thread in threads:
            thread.start()
        for threshold in sorted(draw.sample(range(annotators * spans * 7 // 10), kills)):
            work.wait_for(threshold, threads)
            threading.Event().wait(draw.random() * 0.02)
            in_flight.append(work.wait_for(threshold, threads))
            server.kill()
            assert server.start()["links"] == {}
        for thread in threads:
            thread.join(HUNG)
        server.kill()
    finally:
        server.stop()
    assert work.problems == []
    assert len({(name, id) for name, _item, id, _version, _body in work.acknowledged}) == annotators * spans

    out = folder / "exported.jsonl"
    words = ["annotate", "export", str(store), str(out)]
    subprocess.run([sys.executable, "-m", "fgrl", *words], check=True, env=dict(os.environ), timeout=HUNG)
    exported = list(read_jsonl(out, Sample))
    with Store(store) as left:
        revisions = [own.model_dump() for own in left.revisions()]
    stored = {
        (own["annotator"], own["item"], own["key"], own["version"]): own["body"]
        for own in revisions
        if own["kind"] == "span"
    }
    times = Counter((own["annotator"], own["item"], own["kind"], own["key"], own["version"]) for own in revisions)
    spans_now = [
        (annotation.by, sample.id, span.id, span.start, span.end, span.note)
        for sample in exported for response in sample.responses for annotation in response.annotations for span in annotation.spans
    ]  # fmt: skip
    newest = {
        (name, f"item-{item}", id): body
        for name, item, id, _version, body in sorted(work.acknowledged, key=lambda own: own[3])
    }
    lost = [
        own for name, item, id, version, body in work.acknowledged
        if stored.get(own := (name, f"item-{item}", id, version)) != body
    ]  # fmt: skip
    print(
        f"{len(work.acknowledged)} acknowledgements of {len(stored)} revisions of {annotators * spans} spans by {annotators} annotators; "
        f"{kills} kills with {in_flight} requests in flight, {work.interrupted} attempts interrupted; {len(lost)} lost, "
        f"{sum(count > 1 for count in times.values())} stored twice"
    )
    assert lost == []
    assert set(times.values()) == {1}
    assert set(stored) == {(name, f"item-{item}", id, version) for name, item, id, version, _body in work.acknowledged}
    assert sorted(spans_now) == sorted(
        (*thing, body["start"], body["end"], body["note"]) for thing, body in newest.items() if not body["deleted"]
    )
    spent: dict[str, float] = {}
    for sample in exported:
        for name, about in sample.meta.get("annotation", {"by": {}})["by"].items():
            spent[name] = spent.get(name, 0.0) + about.get("seconds", 0.0)
    assert {name: seconds for name, seconds in spent.items() if seconds} == work.seconds, "active time counts once"
    assert len(in_flight) == kills
    assert all(in_flight), "somebody waited for an answer at every kill"
    assert work.interrupted >= kills


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    killed(tmp_path, annotators=4, spans=25, kills=2, seed=1)


@pytest.mark.evidence
@pytest.mark.parametrize("seed", [11, 12])
def test_eight_annotators_two_thousand_spans_five_kills(tmp_path: Path, seed: int) -> None:
    killed(tmp_path, annotators=8, spans=250, kills=5, seed=seed)
