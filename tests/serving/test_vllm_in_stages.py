"""The same servers serve all that a stage draws: rollouts, evaluations, samples, judges. Stub servers."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from model_helpers import tiny
from pipeline_helpers import fgrl, lives
from stub_engine import interpreter
from stub_engine import stage as opened_stage
from tiny_recipe import a_run, alone, log, write

from fgrl import registry, rollouts
from fgrl.base.console import Console
from fgrl.experiments.stages import sample
from fgrl.kinds import Engine
from fgrl.kinds.specs import Sampling
from fgrl.registry import build
from fgrl.rollouts.serving.servers import Servers
from fgrl.types import Message, Request, Sample

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine as a recipe names it."""
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "stub.log"))
    python = interpreter(tmp_path / "environment")
    return f"{{name: vllm, python: {python}, checksum_every: 1, dtype: float32, correct: none, concurrency: 8}}"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes of the servers that were started."""
    found: list[int] = []
    original = Servers._launched

    def launched(self: Servers, slot: Any) -> Any:
        new = original(self, slot)
        found.append(new.process)
        return new

    monkeypatch.setattr(Servers, "_launched", launched)
    return found


def models_asked(tmp_path: Path) -> list[str]:
    """The name of the weights of each response."""
    return [json.loads(line)[2] for line in (tmp_path / "stub.log").read_text().splitlines()]


def test_a_training_and_its_evaluations_share_servers_and_each_iteration_has_its_own_weights(
    tmp_path: Path, tiny_model_dir: Path, engine: str, started: list[int]
) -> None:
    held_out = (
        f"{{every: 2, sets: {{topics: {{prompts: {{name: lines, path: {tmp_path}/recipe/topics.txt, limit: 3}}, metrics: [length], "
        f"sampling: {{max_new_tokens: 6}}, engine: {engine}}}}}}}"
    )
    stage = alone(
        write(tmp_path / "recipe", tiny_model_dir), "policy", f"stages.policy.rollout.engine={engine}",
        f"stages.policy.evaluate={held_out}", "stages.policy.train.iterations=3",
    )  # fmt: skip
    said = io.StringIO()
    run = a_run(tmp_path / "policy", console=Console(stream=said))
    stage.run(run)
    assert len(started) == 1, said.getvalue()
    assert lives(started[0])
    run.close()
    assert not lives(started[0])
    asked = models_asked(tmp_path)
    assert len(asked) == 3 * 12 + 3 * 3
    assert len(set(asked)) == 4, "the start and each of three iterations; an evaluation has the weights of one of them"
    assert [row["step"] for row in log(tmp_path / "policy") if "tokens" in row] == [0, 1, 2]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_share_the_servers_of_rank_0(
    strategy: str, tmp_path: Path, tiny_model_dir: Path, engine: str
) -> None:
    """With shards the server compares the SHA-256 of each weight that is gathered, and the process without prompts reads along."""
    recipe = write(tmp_path / "recipe", tiny_model_dir)
    shared = engine.replace("{name: vllm", "{name: vllm, transfer: gloo")
    held_out = (
        f"{{every: 3, sets: {{topics: {{prompts: {{name: lines, path: {tmp_path}/recipe/topics.txt, limit: 1}}, metrics: [length, kl], "
        f"sampling: {{max_new_tokens: 6}}, engine: {shared}}}}}}}"
    )
    done = fgrl(
        "run", recipe, "--only", "policy", "stages.reward_model=null", "stages.calibrate=null", "stages.evaluate=null",
        "stages.policy.reward.model=${vars.base}", "stages.policy.reward.segmenter={name: ngram, n: 3}",
        "stages.policy.reward.normalizer=null", "vars.devices=2", f"vars.strategy={strategy}", "stages.policy.train.iterations=3",
        f"stages.policy.rollout.engine={shared}", f"stages.policy.evaluate={held_out}",
        cwd=tmp_path, STUB_LOG=str(tmp_path / "stub.log"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "stub.log").read_text().splitlines()]
    assert len({process for process, _seed, _name in lines}) == 1
    assert not lives(lines[0][0])
    assert len(lines) == 3 * 12 + 2, "an evaluation of one prompt leaves the other process without any"


def test_samples_are_asked_for_all_together_and_kept_part_by_part(
    tmp_path: Path, tiny_model_dir: Path, engine: str, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends when two parts of three are kept goes on with the third alone."""
    prompts = tmp_path / "topics.txt"
    prompts.write_text("\n".join(f"topic {number}" for number in range(10)))
    written = sample.write_jsonl

    def drawn(folder: Path, last: int) -> list[Path]:
        stage = registry.get("stage", "sample")(
            prompts=build(registry.kinds()["reader"], {"name": "lines", "path": str(prompts)}),
            model={"base": str(tiny_model_dir)}, sampling={"max_new_tokens": 5, "batch_size": 2}, per_prompt=2,
            engine=build(Engine, json.loads(json.dumps(_as_mapping(engine)))),
        )  # fmt: skip
        left = [last]

        def counted(path: Path, records: Any) -> int:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return written(path, records)

        monkeypatch.setattr(sample, "write_jsonl", counted)
        run = a_run(folder)
        with contextlib.closing(run), contextlib.nullcontext() if last > 2 else pytest.raises(KeyboardInterrupt):
            stage.run(run)
        return sorted((folder / "parts").glob("*.jsonl"))

    assert len(drawn(tmp_path / "one", 9)) == 3, "parts of 8 responses, which the engine takes at once"
    assert len(models_asked(tmp_path)) == 20
    kept = {part: part.stat().st_ino for part in drawn(tmp_path / "two", 2)}
    assert len(kept) == 2
    (tmp_path / "stub.log").unlink()
    parts = drawn(tmp_path / "two", 9)
    assert len(models_asked(tmp_path)) in (4, 8), "responses of the part that was not kept"
    assert all(part.stat().st_ino == kept.get(part, part.stat().st_ino) for part in parts)
    assert len(parts) == 3
    first, second = ((tmp_path / name / "out" / "samples.jsonl").read_bytes() for name in ("one", "two"))
    assert first == second
    assert len(started) == 3


def test_while_one_response_is_drawn_the_parts_behind_it_are_there(
    tmp_path: Path, tiny_model_dir: Path, engine: str, started: list[int]
) -> None:
    model, settings = tiny(tiny_model_dir), Sampling(max_new_tokens=5)
    prompts = [Sample(id=str(number), prompt=f"topic {number}") for number in range(9)]
    parts = [(start, prompts[start : start + 3]) for start in (0, 3, 6)]
    with opened_stage(tmp_path, concurrency=4) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        running.order(completions=["late 1"])
        found = list(rollouts.draw_parts(model, drawer, parts, settings, 2, seed=1, together=True))
        assert [place for place, _drawn in found] == [1, 2, 0]
        for place, drawn in found:
            first, own = parts[place]
            assert drawn == rollouts.draw(model, drawer, own, settings, 2, seed=1, first=first)


def _as_mapping(engine: str) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(engine)


def test_a_local_judge_keeps_its_servers_between_questions(
    tmp_path: Path, tiny_model_dir: Path, engine: str, started: list[int]
) -> None:
    client = build(
        registry.kinds()["client"],
        {
            "name": "local",
            "model": str(tiny_model_dir),
            "max_tokens": 4,
            "temperature": 1.0,
            "engine": _as_mapping(engine),
        },
    )
    own = build(
        registry.kinds()["client"], {"name": "local", "model": str(tiny_model_dir), "max_tokens": 4, "temperature": 1.0}
    )
    run = a_run(tmp_path / "judge")
    run.cache.mkdir(parents=True, exist_ok=True)
    client.setup(run)
    own.setup(run)
    questions = [Request(messages=[Message(role="user", content=f"question {number}")]) for number in range(6)]
    first = client.complete(questions[:3])
    assert [answer.text for answer in client.complete(questions[:3])] == [answer.text for answer in first], "cached"
    client.complete(questions[3:])
    run.close()
    assert len(started) == 1
    assert len(models_asked(tmp_path)) == 6
    assert client.key(questions[0]) != own.key(questions[0]), "another engine gives other answers"


def identity(engine: Engine) -> Any:
    return registry.dump(engine, for_key=True)


def test_what_counts_for_the_key_is_what_changes_results() -> None:
    plain = build(Engine, {"name": "vllm", "dtype": "float32"})
    elsewhere = build(
        Engine,
        {"name": "vllm", "dtype": "float32", "copies": 2, "tensor_parallel": 2, "devices": [0, 1, 2, 3], "transfer": "files",
         "python": "/somewhere", "memory": 0.5, "checksum_every": 1, "options": ["--swap-space", "8"]},
    )  # fmt: skip
    assert identity(plain) == identity(elsewhere)
    for changed in ({"dtype": "bfloat16"}, {"correct": "mask"}, {"bound": 3.0}, {"ahead": 1}):
        assert identity(build(Engine, {"name": "vllm", "dtype": "float32", **changed})) != identity(plain)


@pytest.mark.parametrize(("fields", "message"), [
    ({"devices": [0, 1, 2], "copies": 2}, "devices names 3 GPUs, and 2 copies of 1 need 2"),
    ({"servers": []}, "servers names none"),
    ({"servers": ["127.0.0.1:8000"]}, "127.0.0.1:8000 is no address: write it as http://"),
])  # fmt: skip
def test_settings_that_contradict_each_other(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(registry.Problems, match=message):
        build(Engine, {"name": "vllm", **fields})
