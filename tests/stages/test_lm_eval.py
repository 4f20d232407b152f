"""Benchmarks through lm-evaluation-harness, on tasks that lie beside this file, against our own model pass."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import in_two_processes

from fgrl import models, registry
from fgrl.base.errors import DataError, Unavailable
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Problems
from fgrl.types import Tokens

TASKS = Path(__file__).resolve().parents[1] / "data" / "lm_eval"
QUESTIONS = [json.loads(line) for line in (TASKS / "questions.jsonl").read_text().splitlines()]
EXAMPLES = [json.loads(line) for line in (TASKS / "examples.jsonl").read_text().splitlines()]


def build(**fields: Any) -> Any:
    know_components()
    node = {
        "name": "lm_eval",
        "models": {"tiny": "nobody/nothing"},
        "tasks": ["tiny_choice"],
        "task_folder": str(TASKS),
    }
    return registry.build(Stage, node | fields)


def run(folder: Path, stage: Any, **more: Any) -> tuple[dict[str, Any], Path]:
    """`metrics` of the report, and the folder of the stage."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    stage.run(Run("benchmarks", folder, cache=folder / "cache", **more))
    return json.loads((folder / "out" / "metrics.json").read_text())["metrics"], folder


@pytest.fixture(scope="module")
def harness() -> Any:
    return pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'fgrl[eval]'")


@pytest.fixture(scope="module")
def trained(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with an adapter that says something else than its base."""
    spec = ModelSpec.model_validate({"base": str(tiny_model_dir), "lora": {"r": 4}})
    model = models.load(spec, trainable=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.5, generator=generator)
    folder = tmp_path_factory.mktemp("adapter")
    models.save(model, folder, about={})
    return folder


def prompt(item: dict[str, Any], label: bool = False) -> str:
    return f"Question: {item['question']}\nAnswer:" + (f" {item['choices'][item['label']]}" if label else "")


def logps(model: Any, item: dict[str, Any], before: str = "") -> list[float]:
    """Nats of each choice, by our own pass."""
    context = model.tokenizer(before + prompt(item)).input_ids or [model.tokenizer.bos_token_id]
    found = []
    for choice in item["choices"]:
        whole = model.tokenizer(before + prompt(item) + " " + choice).input_ids
        ids, rest = torch.tensor([whole[: len(context)]]), torch.tensor([whole[len(context) :]])
        ones = torch.ones_like
        tokens = Tokens(
            ids, ones(ids, dtype=torch.bool), rest, ones(rest, dtype=torch.bool), torch.zeros_like(rest).bool()
        )
        found.append(float(model.score(tokens).logp.sum()))
    return found


def test_multiple_choice_is_what_our_own_pass_says(
    harness, tmp_path: Path, tiny_model_dir: Path, trained: Path
) -> None:
    """The base and a checkpoint with an adapter: accuracies, log-likelihoods, intervals and paired differences."""
    stage = build(models={"base": str(tiny_model_dir), "trained": str(trained)}, baseline="base")
    metrics, folder = run(tmp_path, stage)
    right: dict[str, list[bool]] = {}
    likelihoods: dict[str, list[list[float]]] = {}
    for name, path in (("base", tiny_model_dir), ("trained", trained)):
        model = models.load(ModelSpec(base=str(path)))
        samples = [
            json.loads(line) for line in (folder / f"out/lm_eval/{name}-tiny_choice.jsonl").read_text().splitlines()
        ]
        ours = likelihoods[name] = [logps(model, item) for item in QUESTIONS]
        theirs = [[float(response[0][0]) for response in sample["resps"]] for sample in samples]
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other, abs=1e-4)
        right[name] = [int(np.argmax(one)) == item["label"] for one, item in zip(ours, QUESTIONS, strict=True)]
        found = metrics["tiny_choice"][name]["acc"]
        error = np.std(right[name], ddof=1) / np.sqrt(8)
        assert found["mean"] == pytest.approx(np.mean(right[name]))
        assert (found["high"] - found["mean"], found["mean"] - found["low"]) == pytest.approx((1.959964 * error,) * 2)
        assert found["n"] == 8
    base, other = (np.concatenate(likelihoods[name]) for name in ("base", "trained"))
    assert np.abs(base - other).min() > 1e-3
    change = metrics["tiny_choice"]["differences"]["trained"]["acc"]
    assert change["mean"] == pytest.approx(np.mean(right["trained"]) - np.mean(right["base"]))
    differ = right["base"] != right["trained"]
    assert (change["low"] < change["mean"] < change["high"]) == differ
    assert (
        "task version 1.0, 0-shot, 95% intervals are normal, from its standard errors"
        in metrics["tiny_choice"]["about"]
    )
    stored = json.loads((folder / "out/lm_eval/base.json").read_text())
    assert stored["results"]["tiny_choice"]["acc,none"] == metrics["tiny_choice"]["base"]["acc"]["mean"]
    assert "samples" not in stored


def test_examples_come_before_the_question(harness, tmp_path: Path, tiny_model_dir: Path) -> None:
    stage = build(models={"tiny": str(tiny_model_dir)}, tasks=[{"task": "tiny_choice", "num_fewshot": 2}], limit=2)
    metrics, folder = run(tmp_path, stage)
    samples = [json.loads(line) for line in (folder / "out/lm_eval/tiny-tiny_choice.jsonl").read_text().splitlines()]
    model = models.load(ModelSpec(base=str(tiny_model_dir)))
    for item, sample in zip(QUESTIONS[:2], samples, strict=True):
        text = sample["arguments"][0][0]
        assert text.endswith("\n\n" + prompt(item))
        before = text.removesuffix(prompt(item))
        assert sum(before.count(prompt(example, label=True) + "\n\n") for example in EXAMPLES) == 2
        assert logps(model, item, before) == pytest.approx([float(one[0][0]) for one in sample["resps"]], abs=1e-4)
    assert ", 2-shot," in metrics["tiny_choice"]["about"]
    assert metrics["tiny_choice"]["tiny"]["acc"]["n"] == 2


def test_generated_answers(harness, tmp_path: Path, tiny_model_dir: Path, trained: Path) -> None:
    """Greedy continuations are our own engine's, the adapter counts, and --limit is the smaller limit."""
    system = tmp_path / "system.txt"
    system.write_text("[system]\nAnswer shortly.\n")
    stage = build(
        models={"base": str(tiny_model_dir), "trained": str(trained)}, tasks=["tiny_generate"], limit=5, max_new_tokens=4,
        system_prompt=str(system), batch_size=3,
    )  # fmt: skip
    metrics, folder = run(tmp_path / "stage", stage, limit=3)
    for name, path in (("base", tiny_model_dir), ("trained", trained)):
        model = models.load(ModelSpec(base=str(path)))
        samples = [
            json.loads(line) for line in (folder / f"out/lm_eval/{name}-tiny_generate.jsonl").read_text().splitlines()
        ]
        assert len(samples) == metrics["tiny_generate"][name]["exact_match"]["n"] == 3
        for item, sample in zip(QUESTIONS[:3], samples, strict=True):
            text = sample["arguments"][0][0]
            assert text == "Answer shortly." + prompt(item)
            ids = model.tokenizer(text, return_tensors="pt").input_ids
            with torch.no_grad():
                drawn = model.net.generate(ids, max_new_tokens=4, do_sample=False, attention_mask=torch.ones_like(ids))
            said = model.tokenizer.decode(drawn[0, ids.shape[1] :], skip_special_tokens=True)
            assert sample["resps"][0][0] == said.split("\n")[0]


def test_two_processes_share_requests_out_and_make_the_files_of_one(
    harness, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that begins anew asks nothing about a model that is done; drawn answers are not shared out."""
    from lm_eval.models.huggingface import HFLM

    monkeypatch.setattr("fgrl.measuring.harness.GROUP", 2)
    models = {"one": str(tiny_model_dir), "other": {"base": str(tiny_model_dir), "dtype": "bfloat16"}}
    stage = build(models=models, tasks=["tiny_choice", "tiny_generate"], batch_size=2, max_new_tokens=4, devices=2)
    assert stage.processes() == 2
    asked, place = tmp_path / "asked", [0]

    def counting(original: Any) -> Any:
        def counted(self: Any, requests: Any, **more: Any) -> Any:
            with asked.open("a") as file:
                file.write(f"{place[0]} {len(requests)}\n")
            return original(self, requests, **more)

        return counted

    for kind in ("loglikelihood", "generate_until"):
        monkeypatch.setattr(HFLM, kind, counting(getattr(HFLM, kind)))

    def counted(rank: int, only: Any = stage, folder: Path = tmp_path / "two") -> None:
        place[0] = rank
        (folder / "out").mkdir(parents=True, exist_ok=True)
        only.run(Run("benchmarks", folder, cache=folder / "cache", rank=rank))

    def shares() -> list[int]:
        lines = [tuple(map(int, line.split())) for line in asked.read_text().splitlines()]
        asked.unlink()
        return [sum(count for rank, count in lines if rank == one) for one in (0, 1)]

    counted(0, folder=tmp_path / "one")
    whole, nothing = shares()
    assert nothing == 0
    in_two_processes(counted)
    assert sum(halves := shares()) == whole
    assert min(halves) >= whole // 4
    files = {
        name: {
            file.relative_to(tmp_path / name): file.read_bytes() for file in (tmp_path / name / "out").rglob("*.json*")
        }
        for name in ("one", "two")
    }
    assert files["one"] == files["two"]
    assert len(files["one"]) >= 7
    (tmp_path / "two" / "lm_eval-other-0.json").unlink()
    in_two_processes(counted)
    assert sum(shares()) == whole // 2
    drawn = build(models={"one": models["one"]}, tasks=["tiny_generate"], temperature=0.9, max_new_tokens=4, devices=2)
    in_two_processes(lambda rank: counted(rank, drawn, tmp_path / "drawn"))
    assert shares() == [8, 8]


def test_several_answers_are_drawn_and_averaged(harness, tmp_path: Path, tiny_model_dir: Path, trained: Path) -> None:
    """Three draws of each generated answer, and the multiple choice asked once; intervals are those of one answer."""
    stage = build(
        models={"base": str(tiny_model_dir), "trained": str(trained)}, baseline="base", tasks=["tiny_generate", "tiny_choice"],
        temperature=0.9, top_p=0.9, top_k=20, answers=3, max_new_tokens=4,
    )  # fmt: skip
    metrics, folder = run(tmp_path, stage)
    lines = (folder / "out/lm_eval/base-tiny_generate.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert [one["answer"] for one in samples] == [0] * 8 + [1] * 8 + [2] * 8
    options = samples[0]["arguments"][0][1]
    assert (options["temperature"], options["top_p"], options["top_k"], options["do_sample"]) == (0.9, 0.9, 20, True)
    by_question = [{one["resps"][0][0] for one in samples if one["doc_id"] == doc} for doc in range(8)]
    assert any(len(said) > 1 for said in by_question), "other draws of one question"
    found = metrics["tiny_generate"]["base"]["exact_match"]
    assert found["mean"] == pytest.approx(np.mean([one["exact_match"] for one in samples]))
    assert found["n"] == 8
    assert "exact_match" in metrics["tiny_generate"]["differences"]["trained"]
    choices = (folder / "out/lm_eval/base-tiny_choice.jsonl").read_text().splitlines()
    assert len(choices) == 8
    again, _ = run(tmp_path / "again", stage)
    assert again == metrics


def test_answers_become_one_by_their_means() -> None:
    from fgrl.measuring.harness import merged

    parts = [
        {"results": {"t": {"alias": "t", "sample_len": 2, "acc,none": value, "acc_stderr,none": error}}, "samples": {"t": [{"acc": value}]}}
        for value, error in ((0.0, 0.1), (1.0, 0.3), (0.5, 0.2))
    ]  # fmt: skip
    whole = merged(parts)
    told = whole["results"]["t"]
    assert (told["acc,none"], told["acc_stderr,none"], told["sample_len"]) == (0.5, pytest.approx(0.2), 2)
    assert whole["samples"]["t"] == [{"acc": 0.0, "answer": 0}, {"acc": 1.0, "answer": 1}, {"acc": 0.5, "answer": 2}]
    assert parts[0]["results"]["t"]["acc,none"] == 0.0, "what was given stays as it was"


def test_a_stage_that_was_stopped_goes_on(harness, tmp_path: Path, tiny_model_dir: Path, monkeypatch) -> None:
    """A model that is done is not asked again."""
    from fgrl.measuring import harness as ours

    asked: list[Any] = []
    evaluate = ours.evaluate
    monkeypatch.setattr(ours, "evaluate", lambda *args: asked.append(args[3]) or evaluate(*args))
    stage = build(models={"one": str(tiny_model_dir), "other": str(tiny_model_dir)}, limit=1)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stage, interrupted=lambda: len(asked) == 1)
    metrics, _ = run(tmp_path, stage)
    assert len(asked) == 2
    assert metrics["tiny_choice"]["one"]["acc"]["mean"] == metrics["tiny_choice"]["other"]["acc"]["mean"]
    assert "differences" not in metrics["tiny_choice"]


def test_a_chat_has_the_template(harness, tmp_path: Path, tiny_model_dir: Path) -> None:
    tasks = [{"task": "tiny_choice", "num_fewshot": 1}]
    _, folder = run(tmp_path, build(models={"tiny": str(tiny_model_dir)}, tasks=tasks, chat_template=True, limit=1))
    (sample,) = [json.loads(line) for line in (folder / "out/lm_eval/tiny-tiny_choice.jsonl").read_text().splitlines()]
    text = sample["arguments"][0][0]
    assert text.count("<|user|>") == text.count("<|assistant|>") == 2
    assert text.endswith("<|assistant|>\n")


def test_what_the_harness_would_ignore_is_refused(harness, tmp_path: Path, tiny_model_dir: Path) -> None:
    stage = build(models={"tiny": str(tiny_model_dir)}, tasks=[{"task": "tiny_fixed", "num_fewshot": 6}])
    with pytest.raises(DataError, match=r"tiny_fixed fixes num_fewshot at 0 .*: leave num_fewshot out"):
        run(tmp_path, stage)


def test_truthfulqa_is_six_shot_as_it_is(harness) -> None:
    """What recipes rely on: the examples are in its prompt, so that num_fewshot stays out."""
    folder = Path(harness.__file__).parent / "tasks"
    text = (folder / "truthfulqa" / "truthfulqa_mc1.yaml").read_text()
    assert text.count("\\n\\n\\\n  Q: ") + 1 == 6
    assert "num_fewshot: 0" in text
    assert "num_fewshot" not in (folder / "triviaqa" / "default.yaml").read_text()


@pytest.fixture
def few_of_its_own(harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness has two folders of its own tasks: to read its thousands takes ten seconds."""
    from lm_eval.tasks import manager

    for name in ("triviaqa", "truthfulqa"):
        shutil.copytree(Path(harness.__file__).parent / "tasks" / name, tmp_path / "few" / name)
    monkeypatch.setattr(manager, "__file__", str(tmp_path / "few" / "manager.py"))


@pytest.mark.usefixtures("few_of_its_own")
def test_an_unknown_task_and_data_out_of_reach_are_said(harness, tmp_path: Path) -> None:
    from fgrl.measuring import harness as ours

    with pytest.raises(DataError, match='no task "truthfulqa_mc3"; did you mean "truthfulqa_mc'):
        ours.task_manager(
            build(tasks=["tiny_choice", "triviaqa", "truthfulqa_mc1", "truthfulqa_mc2", "truthfulqa_mc3"])
        )
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in ("tiny_choice.yaml", "examples.jsonl"):
        (folder / name).write_text((TASKS / name).read_text())
    stage = build(task_folder=str(folder))
    with pytest.raises(DataError, match=r"task tiny_choice cannot be loaded: .*questions.jsonl"):
        ours.load_tasks(stage, ours.task_manager(stage))


def test_numbers_without_an_error_or_a_value_say_so() -> None:
    from fgrl.measuring.harness import interval, is_number, title

    told = {"acc,none": 0.5, "acc_stderr,none": "N/A", "f1,strict": "N/A", "sample_len": 1, "alias": "x"}
    assert [title(key) for key in filter(is_number, told)] == ["acc", "f1 strict"]
    bare, nothing = interval(0.5, told, "acc,none", 0.95), interval("N/A", told, "f1,strict", 0.95)
    assert (bare.mean, bare.low, bare.note) == (0.5, None, "the harness gives no standard error")
    assert (nothing.mean, nothing.note) == (None, "the harness says N/A")


def test_a_number_that_is_no_mean_over_questions_has_no_difference() -> None:
    from fgrl.measuring.harness import measured

    def one(values: list[Any], told: float) -> dict[str, Any]:
        samples = [{"doc_id": n, "filter": "none", "acc": value} for n, value in enumerate(values)]
        return {"results": {"t": {"acc,none": told}}, "samples": {"t": samples}}

    means = measured({"a": one([1, 0], 0.5), "b": one([1, 1], 1.0)}, "a", 0.95)["t"]["differences"]["b"]
    assert means["acc"]["mean"] == 0.5
    assert measured({"a": one([1, 0], 0.5), "b": one([1, 1], 0.9)}, "a", 0.95)["t"]["differences"]["b"] == {}
    assert measured({"a": one([1, 0], 0.5), "b": one([[1, 1], [0]], 0.5)}, "a", 0.95)["t"]["differences"]["b"] == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"baseline": "sft"}, 'baseline: no model "sft"'),
        ({"models": {"about": "nobody/nothing"}}, "'about' cannot be a model's name"),
        ({"tasks": []}, "tasks"),
        ({"answers": 5}, "answers wants a temperature above 0"),
        ({"top_p": 0.8, "temperature": 0.0}, "top_p wants a temperature above 0"),
        ({"tasks": [{"task": "triviaqa", "num_fewshot": -1}]}, "num_fewshot"),
    ],
)
def test_what_could_only_fail_later_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Problems, match=said):
        build(**fields)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'fgrl\[eval\]'"):
        run(tmp_path, build())


def test_a_system_prompt_is_one_text(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    for text, wanted in (("Be brief.", "Be brief."), ("[system]\nBe brief.", "Be brief.")):
        file.write_text(text)
        assert build(system_prompt=str(file))._system() == wanted
    file.write_text("[system]\nBe brief.\n[user]\nHello.")
    with pytest.raises(DataError, match="wants the text of a system prompt alone"):
        build(system_prompt=str(file))._system()


RECIPE = """
about: "A benchmark."
stages:
  benchmarks: {{name: lm_eval, models: {{base: {base}, trained: {trained}}}, baseline: base, tasks: [tiny_choice],
                task_folder: {tasks}, batch_size: 4}}
"""


def test_a_recipe_s_benchmark_is_in_the_table_and_on_the_page(harness, tmp_path: Path, tiny_model_dir, trained) -> None:
    path = tmp_path / "bench.yaml"
    quoted = {"base": tiny_model_dir, "trained": trained, "tasks": TASKS}
    path.write_text(RECIPE.format(**{name: json.dumps(str(value)) for name, value in quoted.items()}))
    command = [sys.executable, "-m", "fgrl", "run", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tiny_choice\.acc\b.*: lm-evaluation-harness", done.stdout, re.MULTILINE)
    assert "difference" in done.stdout
    (page,) = (tmp_path / "runs" / "bench").glob("*/report.html")
    assert "from its standard errors" in page.read_text()
