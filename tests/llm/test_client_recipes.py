"""The client in recipes: limits, kills and keys through `fgrl run`; the recipes of the how-to pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fault_server import FaultServer

from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.recipe import load
from fgrl.feedback.llm.price_tables import read_tables
from fgrl.registry import Problems
from fgrl.types import Response, Sample, write_jsonl

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "how-to" / name for name in ("endpoints.md", "budgets.md")]
KEY = "sk-planted-in-a-recipe-0123456789"
RECIPE = """
about: "A judge behind an endpoint."
stages:
  judged:
    name: annotate
    data: {name: jsonl, path: candidates.jsonl}
    annotator:
      name: preference
      prompt: judge.txt
      client: {name: openai, model: m, base_url: "%s", api_key_env: PLANTED, max_calls: 25, concurrency: 4}
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", KEY)
    (tmp_path / "judge.txt").write_text("{question}\n1: {first}\n2: {second}\nWhich is better?")
    samples = [
        Sample(id=str(n), prompt=f"question {n}", responses=[Response(text="yes"), Response(text="no")])
        for n in range(20)
    ]
    write_jsonl(tmp_path / "candidates.jsonl", samples)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "noted"),
    [("http://10.0.0.5:8000/v1", True), ("https://10.0.0.5/v1", False), ("http://127.0.0.1:8000/v1", False), ("http://localhost/v1", False)],
)  # fmt: skip
def test_a_key_that_goes_to_another_machine_unencrypted_is_noted_once(address: str, noted: bool, world: Path) -> None:
    text = RECIPE % address
    again = text.partition("stages:\n")[2].replace("judged:", "second:")
    (world / "recipe.yaml").write_text(text + again)
    notes = [note for note in load(world / "recipe.yaml").notes if "unencrypted" in note]
    assert len(notes) == noted
    assert all("the key in PLANTED and the prompts go to 10.0.0.5 unencrypted" in note for note in notes)
    (world / "recipe.yaml").write_text(text.replace("PLANTED", "null"))
    assert load(world / "recipe.yaml").notes == []


def test_a_limit_ends_with_exit_code_4_and_a_higher_one_goes_on(world: Path) -> None:
    with FaultServer(lambda prompt, attempt: "ok", answer=lambda prompt, body: "1") as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        short = execute(load("r.yaml"), world / "runs")
        assert short.exit == 4
        assert "over budget: 25 of 25 calls are made" in short.error
        assert "15 of 40 requests to m are still to ask" in short.error
        assert sum(server.asked.values()) == 25
        whole = execute(load("r.yaml", ["stages.judged.annotator.client.max_calls=40"]), world / "runs")
        assert whole.exit == 0, whole.error
        assert len(server.asked) == sum(server.asked.values()) == 40
        assert whole.stages["judged"].key == short.stages["judged"].key
        assert whole.stages["judged"].summary["calls"] == 40
        server.plan = lambda prompt, attempt: "401"
        (world / "candidates.jsonl").write_text((world / "candidates.jsonl").read_text().replace("question 3", "new"))
        refused = execute(load("r.yaml", ["stages.judged.annotator.client.max_calls=null"]), world / "runs")
        assert refused.exit == 2
        assert "refuses the key in PLANTED (HTTP 401" in refused.error
    written = [path for path in (world / "runs").rglob("*") if path.is_file()]
    assert {"calls.jsonl", "run.log", "summary.json", "completions.sqlite"} <= {path.name for path in written}
    for path in written:
        assert KEY.encode() not in path.read_bytes(), path


def test_a_stage_without_an_answer_is_not_done(world: Path) -> None:
    with FaultServer(lambda prompt, attempt: "400", answer=lambda prompt, body: "1") as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        told = execute(load("r.yaml"), world / "runs")
        assert told.exit == 3
        assert "40 of 40 questions got no answer that can be used" in told.error
        server.plan = lambda prompt, attempt: "ok"
        assert execute(load("r.yaml", ["stages.judged.annotator.client.max_calls=40"]), world / "runs").exit == 0


def test_an_outage_of_some_questions_is_no_finished_stage_either(world: Path) -> None:
    lost = ("question 1", "question 2", "question 3", "question 4", "question 5", "question 6")
    with FaultServer(
        lambda prompt, attempt: "400" if any(f"{one}\n" in prompt or f"{one}?" in prompt for one in lost) else "ok",
        answer=lambda prompt, body: "1",
    ) as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        more = ["stages.judged.annotator.client.max_calls=null"]
        told = execute(load("r.yaml", more), world / "runs")
        assert told.exit == 3
        assert "12 of 40 questions got no answer" in told.error
        assert "`max_missing` (0.25)" in told.error
        enough = execute(load("r.yaml", [*more, "stages.judged.max_missing=0.3"]), world / "runs")
        assert enough.exit == 0
        assert enough.stages["judged"].key == told.stages["judged"].key
        assert enough.stages["judged"].summary["failed"] == 12


def test_a_key_in_place_of_its_variable_is_refused(world: Path) -> None:
    (world / "r.yaml").write_text(RECIPE % "http://127.0.0.1:9/v1")
    with pytest.raises(Problems, match="take it out of the recipe"):
        load("r.yaml", ["stages.judged.annotator.client.api_key_env=sk-planted"])


def test_deleting_the_mark_of_a_stage_asks_again_what_failed(world: Path) -> None:
    with FaultServer(
        lambda prompt, attempt: "400" if "question 7" in prompt else "ok", answer=lambda prompt, body: "1"
    ) as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        more = ["stages.judged.annotator.client.max_calls=40"]
        whole = execute(load("r.yaml", more), world / "runs")
        assert whole.stages["judged"].summary["failed"] == 2
        (mark,) = (world / "runs").glob("stages/*/stage.json")
        mark.unlink()
        server.plan = lambda prompt, attempt: "ok"
        again = execute(load("r.yaml", more), world / "runs")
        assert again.stages["judged"].summary["failed"] == 0
        assert sum(server.asked.values()) == 42


def blocks() -> list[tuple[str, str]]:
    """(file name, text) of the pages' yaml blocks."""
    found = []
    for page in PAGES:
        found += re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return found


def test_the_recipes_of_the_pages_are_sound(world: Path) -> None:
    named = dict(blocks())
    assert set(named) == {"judge.yaml", "own.yaml", "budget.yaml", "priced.yaml", "prices.yaml"}
    for name, text in named.items():
        (world / name).write_text(text)
    clients = {}
    for name in sorted(set(named) - {"prices.yaml"}):
        clients[name] = load(name).stages["judged"].annotator.client
    assert clients["own.yaml"].price() == (0, 0)
    assert clients["budget.yaml"].price() == clients["priced.yaml"].price() == (2.5, 10)
    assert (clients["budget.yaml"].budget_usd, clients["budget.yaml"].max_calls) == (5, 20000)
    assert read_tables("prices.yaml")[0].models
    assert [name for name, client in clients.items() if client.budget_note() is not None] == ["budget.yaml"]
    (note,) = estimates(plan(load("budget.yaml"), world / "runs"))["judged"]["budget"]
    assert note.endswith("starts once 5 USD are spent; what the calls then in flight cost comes on top")


def test_the_message_in_the_page_is_the_real_one(world: Path) -> None:
    page = PAGES[1].read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(over budget: .*?)```", page, re.DOTALL)
    with FaultServer(answer=lambda prompt, body: "1") as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        client = "stages.judged.annotator.client"
        more = [
            f"{client}.max_calls=null",
            f"{client}.budget_usd=0.05",
            client + ".prices={prompt: 100, completion: 100}",
        ]
        told = execute(load("r.yaml", more), world / "runs").error

    def bare(text: str) -> str:
        return re.sub(r"[\d.,e-]*\d", "N", " ".join(text.split()))

    assert bare(told).replace("to m are", "to gpt-4o-2024-08-06 are").replace("gpt-4o-2024-08-06", "MODEL") == bare(
        shown.replace("gpt-4o-2024-08-06", "MODEL")
    )


def test_the_ledger_says_what_each_call_took(world: Path) -> None:
    with FaultServer(answer=lambda prompt, body: "1") as server:
        (world / "r.yaml").write_text(RECIPE % server.url)
        execute(load("r.yaml", ["stages.judged.annotator.client.max_calls=40"]), world / "runs")
    (ledger,) = (world / "runs").glob("stages/*/calls.jsonl")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == 40
    for line in lines:
        assert (line["prompt_tokens"], line["completion_tokens"], line["status"]) == (10, 5, "answered")
        assert line["seconds"] > 0
