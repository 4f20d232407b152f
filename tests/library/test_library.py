"""`import fgrl` as a library: the same engine as the command line, with objects and exceptions instead of text."""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from fault_server import FaultServer
from scratch_registry import scratch
from transformers import AutoModelForCausalLM

import fgrl
from fgrl.components.clients.openai import OpenAI
from fgrl.components.judges.llm import LLMJudge
from fgrl.kinds import Reward, Segmenter
from fgrl.library import scored_texts
from fgrl.library.inputs import override_texts
from fgrl.models import loading
from fgrl.registry import Problems
from fgrl.types import Rewards, Rollout

TOPICS = [f"{thing} {number}" for thing in ("rivers", "lamps", "birds") for number in range(4)]
RECIPE = """
about: "A policy that is paid for vowels."
vars: {{base: {base}}}
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt, template: "Write about {{line}}.", limit: 8}}
    model: {{base: "${{vars.base}}", lora: {{r: 2, alpha: 4}}}}
    reward: {{name: vowels}}
    algorithm: {{name: grpo}}
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 6}}}}
    train: {{lr: 1e-2, iterations: 1, batch_size: 4, accelerator: cpu}}
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: topics.txt, template: "Write about {{line}}.", skip: 8}}
    models: {{before: "${{vars.base}}", after: "${{out:policy}}"}}
    baseline: before
    rewards: {{vowels: vowels}}
    metrics: [length]
    sampling: {{max_new_tokens: 6}}
    show: 0
"""


class Vowels(Reward):
    """A token is worth its vowels."""

    worth: float = 1.0
    """Of a vowel."""
    fails: bool = False
    """Raise instead."""

    def score(self, rollout: Rollout) -> Rewards:
        if self.fails:
            raise ZeroDivisionError("a vowel too many")
        offsets = rollout.offsets or [[(0, 0)] * rollout.mask.shape[1] for _ in rollout.texts]
        token = torch.zeros(rollout.mask.shape)
        for row, (text, places) in enumerate(zip(rollout.texts, offsets, strict=True)):
            for place, (start, end) in enumerate(places):
                token[row, place] = self.worth * sum(letter in "aeiou" for letter in text[start:end])
        return Rewards(response=token.sum(1), token=token, credit_mask=rollout.mask, segment_ids=None)

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"})


class LikelyVowels(Vowels):
    """The same, for a reward that asks for the log-probabilities of the reference."""

    def score(self, rollout: Rollout) -> Rewards:
        assert rollout.ref_logp is not None
        return super().score(rollout)

    def needs(self) -> frozenset[str]:
        return super().needs() | {"ref_logp"}


class TextVowels(Vowels):
    """The same, for a reward that asks for the texts."""

    def needs(self) -> frozenset[str]:
        return super().needs() | {"text"}


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    with scratch():
        fgrl.register("vowels")(Vowels)
        fgrl.register("likely_vowels")(LikelyVowels)
        fgrl.register("text_vowels")(TextVowels)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path, registered: None) -> Path:
    """A folder with a recipe and its data."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "topics.txt").write_text("\n".join(TOPICS), encoding="utf-8")
    (folder / "vowels.yaml").write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir))), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(world: Path) -> fgrl.FinishedRun:
    return fgrl.run(
        world / "vowels.yaml", {"stages.policy.train.lr": 2e-2}, seed=1, runs=world / "runs", progress=False
    )


def test_a_run_has_its_stages_folders_and_settings(world: Path, finished: fgrl.FinishedRun) -> None:
    assert (finished.name, finished.state, finished.seed, finished.error) == ("vowels", "finished", 1, "")
    assert {name: (stage.component, stage.state) for name, stage in finished.stages.items()} == {
        "policy": ("rl", "done"),
        "evaluate": ("evaluate", "done"),
    }
    assert finished.settings["stages"]["policy"]["train"]["lr"] == 2e-2
    assert finished.folder.parent == world / "runs" / "vowels"
    assert finished.report == finished.folder / "report.html"
    assert (finished.stages["policy"].product / "adapter_model.safetensors").is_file()
    assert list(finished.stages["policy"].log()["step"]) == [0]
    assert finished.folder.name in repr(finished)
    command = json.loads((finished.folder / "summary.json").read_text())["command"]
    assert command[:2] == ["fgrl", "run"]
    assert command[3:5] == ["stages.policy.train.lr=0.02", "seed=1"]


def test_a_second_run_takes_everything_from_the_cache(world: Path, finished: fgrl.FinishedRun) -> None:
    overrides = {"stages.policy.train.lr": 2e-2}
    planned = fgrl.plan(world / "vowels.yaml", overrides, seed=1, runs=world / "runs")
    assert [*zip(planned["stage"], planned["cached"], strict=True)] == [("policy", True), ("evaluate", True)]
    again = fgrl.run(world / "vowels.yaml", overrides, seed=1, runs=world / "runs", progress=False)
    assert again.folder == finished.folder
    other = fgrl.plan(world / "vowels.yaml", overrides, seed=2, runs=world / "runs")
    assert not other["cached"].any()


def test_numbers_are_a_table_with_intervals(world: Path, finished: fgrl.FinishedRun) -> None:
    table = finished.numbers("length.tokens")
    before, after = table.to_dict("records")
    assert (before["model"], after["model"], after["number"], after["seed"]) == ("before", "after", "length.tokens", 1)
    recorded = json.loads((finished.stages["evaluate"].product / "metrics.json").read_text())["metrics"]["length"]
    assert {end: after[end] for end in ("mean", "low", "high")} == {
        end: recorded["after"]["tokens"][end] for end in ("mean", "low", "high")
    }
    assert after["difference"] == recorded["differences"]["after"]["tokens"]["mean"]
    assert math.isnan(before["difference"])
    assert "length.tokens" in table.to_markdown()
    assert r"\begin{tabular}" in table.to_latex()
    by_recipe = fgrl.table(
        world / "vowels.yaml", {"stages.policy.train.lr": 2e-2}, seeds=[1], wanted="length.tokens", runs=world / "runs"
    )
    assert by_recipe.drop(columns="recipe").equals(table.drop(columns="recipe"))
    units = fgrl.table(finished, wanted="length.tokens", units=True)
    values = numpy.array([value for (value,) in units[units.model == "after"]["values"]])
    assert list(units.unit.unique()) == [f"topics:{place}" for place in range(8, 12)]
    assert values[:, 0].sum() / values[:, 1].sum() == pytest.approx(after["mean"])
    with pytest.raises(fgrl.base.errors.UsageError, match="nothing_like_it"):
        finished.numbers("nothing_like_it")


def test_the_views_of_the_command_line_are_frames(finished: fgrl.FinishedRun) -> None:
    compared = fgrl.compare([finished, finished.folder], wanted="length.tokens")
    assert list(compared["recipe"]) == ["vowels", "vowels (2)"]
    assert list(compared["difference"].fillna(9.0)) == [9.0, 0.0], "the first recipe has none"
    assert compared["mean"].nunique() == 1
    points = fgrl.frontier(finished, "length.words", "length.tokens", models=["after"])
    assert list(points["x_mean"]) == list(compared["mean"][:1])
    assert points["best"].all()
    log = finished.stages["policy"].log()
    assert list(fgrl.curves(finished, "reward", stages="policy")["mean"]) == list(log["reward"])
    assert fgrl.elo(finished).empty, "no evaluation rates models"


def test_a_folder_is_opened_again(finished: fgrl.FinishedRun, tmp_path: Path) -> None:
    assert fgrl.open_run(finished.folder).numbers().equals(finished.numbers())
    assert fgrl.open_run(finished.folder.parent).folder == finished.folder
    assert fgrl.table(finished.folder).equals(finished.numbers())
    for wrong in (tmp_path, tmp_path / "absent"):
        with pytest.raises(fgrl.base.errors.UsageError, match="the folder of a run is"):
            fgrl.open_run(wrong)


def test_the_policy_generates_and_gives_probabilities(finished: fgrl.FinishedRun, tiny_model_dir: Path) -> None:
    policy = finished.policy()
    drawn = policy.generate(["Write.", [{"role": "user", "content": "Sing."}]], n=2, max_new_tokens=4, seed=5)
    assert [each.prompt if isinstance(each.prompt, str) else each.prompt[0].content for each in drawn] == [
        "Write.", "Write.", "Sing.", "Sing.",
    ]  # fmt: skip
    assert all(1 <= len(each.token_ids) <= 4 for each in drawn)
    assert policy.generate("Write.", n=2, max_new_tokens=4, seed=5) == drawn[:2]
    greedy = [policy.generate("Write.", max_new_tokens=4, temperature=0, seed=seed)[0].text for seed in (0, 1)]
    assert greedy[0] == greedy[1]
    with pytest.raises(fgrl.base.errors.UsageError, match="top_p"):
        policy.generate("Write.", top_p=2.0)

    base = fgrl.load(tiny_model_dir)
    scored = base.log_probs("Write.", "birds sing")
    ids = base.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write."}], add_generation_prompt=True, return_dict=False
    )
    response = base.tokenizer("birds sing", add_special_tokens=False).input_ids
    response.append(base.language_model.end_id)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tiny_model_dir)(torch.tensor([ids + response])).logits
    expected = logits[0, len(ids) - 1 : -1].log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]
    assert scored.values == pytest.approx(expected.tolist(), abs=1e-4)
    assert scored.total == pytest.approx(float(expected.sum()), abs=1e-4)
    assert scored.text == "birds sing"
    assert len(base.log_probs("Write.", "birds sing", finished=False).values) == len(response) - 1
    with pytest.raises(fgrl.base.errors.UsageError, match="these values are not rewards"):
        _ = scored.token_rewards


def test_every_way_to_name_a_model_loads_it(finished: fgrl.FinishedRun) -> None:
    stage = finished.stages["policy"]
    total = finished.policy("policy").log_probs("Write.", "birds").total
    for source in (stage, stage.folder, stage.product, finished.folder, finished):
        assert fgrl.load(source).log_probs("Write.", "birds").total == total
    with pytest.raises(fgrl.base.errors.UsageError, match="no such folder"):
        fgrl.load(finished.folder / "absent" / "model")
    with pytest.raises(fgrl.base.errors.UsageError, match='did you mean "policy"'):
        finished.policy("polcy")


def test_a_text_is_scored_with_the_recipes_reward(world: Path, finished: fgrl.FinishedRun) -> None:
    scored = finished.score("policy", "Write.", "birds sing aloud")
    by_hand = [
        sum(letter in "aeiou" for letter in "birds sing aloud"[start:end]) for start, end in scored.answer.offsets
    ]
    assert scored.token_rewards == by_hand
    assert (scored.reward, scored.total, scored.text) == (5.0, 5.0, "birds sing aloud")
    same = fgrl.score(world / "vowels.yaml", "policy", "Write.", "birds sing aloud", runs=world / "runs")
    assert same.token_rewards == by_hand
    double = fgrl.score(
        world / "vowels.yaml",
        "policy",
        "Write.",
        "birds",
        overrides={"stages.policy.reward.worth": 2.0},
        runs=world / "runs",
    )
    assert double.reward == 2.0
    assert finished.score("evaluate", "Write.", "birds", reward="vowels").reward == 1.0
    with pytest.raises(fgrl.base.errors.UsageError, match='no reward "vowel"'):
        finished.score("evaluate", "Write.", "birds", reward="vowel")
    with pytest.raises(fgrl.base.errors.UsageError, match="needs policy, which has not run"):
        fgrl.score(world / "vowels.yaml", "evaluate", "Write.", "birds", runs=world / "empty")


@pytest.mark.parametrize(("reward", "loaded"), [("vowels", 0), ("text_vowels", 0), ("likely_vowels", 1)])
def test_scoring_loads_the_models_weights_only_for_a_reward_that_needs_them(
    world: Path, finished: fgrl.FinishedRun, monkeypatch: pytest.MonkeyPatch, reward: str, loaded: int
) -> None:
    read: list[object] = []
    load = loading.load
    monkeypatch.setattr(loading, "load", lambda spec, **how: read.append(spec) or load(spec, **how))
    overrides = {"stages.policy.reward.name": reward}
    scored = fgrl.score(
        world / "vowels.yaml", "policy", "Write.", "birds sing", overrides=overrides, runs=world / "runs"
    )
    assert scored.token_rewards == finished.score("policy", "Write.", "birds sing").token_rewards
    assert len(read) == loaded


def test_recorded_answers_have_their_rewards(finished: fgrl.FinishedRun) -> None:
    answers = finished.answers(model="after")
    assert len(answers) == 4
    assert all(answer.reward == sum(value or 0 for value in answer.token_rewards) for answer in answers)
    with pytest.raises(fgrl.base.errors.UsageError, match='no model "aftr"'):
        finished.answers(model="aftr")


def test_text_of_models_is_drawn_as_text_only(finished: fgrl.FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a<script>alert(1)</script>\u202e\x1b[31m</style>"
    scored = finished.score("policy", f"Write {evil}", evil)
    html = scored._repr_html_()
    assert "<script" not in html
    assert html.count("</style>") == 1
    assert "\u202e" not in html + repr(scored)
    assert "\x1b" not in html + repr(scored)
    assert "&lt;" in html
    assert 'class="t p5"' in html
    scored.draw()
    drawn = capsys.readouterr().out
    assert "\x1b" not in drawn
    assert "a(+1)" in drawn
    assert not scored_texts.in_notebook()


def test_segments_are_spans_of_the_text() -> None:
    from fgrl.measuring.answer import Answer

    record = Answer(
        sample={"id": "0", "prompt": "Say."}, response={"text": "One two.", "finished": True},
        tokens=["One", " two", ".", "<|end|>"], offsets=[(0, 3), (3, 7), (7, 8), (8, 8)],
        rewards={"r": 0.5}, token_rewards={"r": [0.25, 0.25, None, None]}, segments={"r": [0, 0, 1, -1]},
    )  # fmt: skip
    scored = scored_texts.of_answer(record)
    assert scored.spans == [
        fgrl.TokenSpan(0, 7, "One two", 0.5), fgrl.TokenSpan(7, 8, ".", None),
    ]  # fmt: skip
    assert 'class="seg"' in scored._repr_html_()


def test_mistakes_of_a_recipe_are_raised_with_their_place(world: Path) -> None:
    assert fgrl.validate(world / "vowels.yaml").stages == ["policy", "evaluate"]
    with pytest.raises(Problems) as raised:
        fgrl.run(world / "vowels.yaml", {"stages.policy.train.lr": "much"}, runs=world / "runs")
    assert "overrides: stages.policy.train.lr: wants float" in str(raised.value)
    assert isinstance(raised.value, fgrl.base.errors.FgrlError)
    with pytest.raises(Problems, match="polcy"):
        fgrl.validate(world / "vowels.yaml", {"stages.polcy.train.lr": 1.0})
    for value in (float("nan"), {1, 2}, object()):
        with pytest.raises(fgrl.base.errors.UsageError, match=r"override vars\.base"):
            fgrl.validate(world / "vowels.yaml", {"vars.base": value})
    with pytest.raises(fgrl.base.errors.UsageError, match="given twice"):
        fgrl.validate(world / "vowels.yaml", {"seed": 1}, seed=2)


def test_values_of_any_kind_are_overrides(world: Path) -> None:
    def settings(value: Any) -> Any:
        from fgrl.library.inputs import load_recipe, override_texts

        return load_recipe(world / "vowels.yaml", override_texts(value)).data["stages"]["policy"]

    assert settings({"stages.policy.train.lr": numpy.float32(0.5)})["train"]["lr"] == 0.5
    assert settings({"stages.policy.rollout.batch_size": numpy.int64(8)})["rollout"]["batch_size"] == 8
    assert settings({"stages.policy.prompts.path": world / "topics.txt"})["prompts"]["path"] == str(
        world / "topics.txt"
    )
    assert settings({"stages.policy.reward": Vowels(worth=3.0)})["reward"]["worth"] == 3.0
    assert (
        settings({"stages.policy.prompts.template": 'no: "{line}", [1e-5]'})["prompts"]["template"]
        == 'no: "{line}", [1e-5]'
    )
    assert settings({"stages.policy.model.lora": None})["model"]["lora"] is None


def test_the_error_of_a_stage_is_raised_and_recorded(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    overrides = {"stages.policy.prompts.limit": 2, "stages.policy.rollout.batch_size": 8, "stages.evaluate": None}
    (world / "few.txt").write_text("one\ntwo", encoding="utf-8")
    overrides |= {"stages.policy.prompts.path": str(world / "few.txt"), "stages.policy.prompts.limit": None}
    with pytest.raises(fgrl.base.errors.DataError, match="takes 4 prompts"):
        fgrl.run(world / "vowels.yaml", overrides, runs=world / "failing", progress=False)
    assert not (world / "failing" / "vowels").exists(), "a failed start leaves nothing behind"
    fails = {"stages.policy.prompts.template": "{line}", "stages.evaluate": None, "stages.policy.reward.fails": True}
    with pytest.raises(fgrl.base.errors.UserCodeError, match="a vowel too many"):
        fgrl.run(world / "vowels.yaml", fails, runs=world / "failing", progress=False)
    newest = fgrl.open_run(world / "failing" / "vowels")
    assert newest.state == "failed"
    assert "a vowel too many" in newest.error
    assert "a vowel too many" not in capfd.readouterr().err
    assert "a vowel too many" in (newest.folder / "run.log").read_text()
    with pytest.raises(fgrl.base.errors.UsageError, match=r"policy has not finished \(unfinished\)"):
        _ = newest.stages["policy"].product
    assert newest.numbers().empty


def test_an_error_in_a_component_of_this_process_is_reported_with_its_line(world: Path) -> None:
    overrides = {
        "stages.policy.prompts.template": "{line}",
        "stages.evaluate": None,
        "stages.policy.reward.fails": True,
    }
    with pytest.raises(fgrl.base.errors.UserCodeError) as raised:
        fgrl.run(world / "vowels.yaml", overrides, runs=world / "failing", progress=False)
    assert "test_library.py" in str(raised.value)
    assert "ZeroDivisionError: a vowel too many" in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 5
    with pytest.raises(ZeroDivisionError):
        fgrl.score(world / "vowels.yaml", "policy", "Write.", "birds", overrides=overrides, runs=world / "runs")


def test_random_generators_are_left_as_they_were(world: Path, finished: fgrl.FinishedRun) -> None:
    for seed in (3, 4):
        random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
        expected = random.random(), numpy.random.rand(), torch.rand(1).item()
        random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
        finished.score("policy", "Write.", "birds")
        finished.policy().generate("Write.", max_new_tokens=2)
        assert (random.random(), numpy.random.rand(), torch.rand(1).item()) == expected


def test_other_threads_and_a_running_event_loop_are_no_obstacle(world: Path, tmp_path: Path) -> None:
    """A notebook runs its cells inside an event loop, and an application may call from any thread: there signals cannot be handled,
    and `asyncio.run` would fail."""
    (tmp_path / "samples.jsonl").write_text(
        '{"id": "1", "prompt": "Where is it?"}\n{"id": "2", "prompt": "Who is it?"}\n', encoding="utf-8"
    )
    (tmp_path / "ask.txt").write_text("{prompt}", encoding="utf-8")
    with FaultServer() as server:
        (tmp_path / "asked.yaml").write_text(
            f"""
about: "A language model answers."
stages:
  answers:
    name: annotate
    data: {{name: jsonl, path: samples.jsonl}}
    annotator: {{name: answer, prompt: ask.txt, client: {{name: openai, model: m, base_url: {server.url}, api_key_env: null}}}}
""",
            encoding="utf-8",
        )
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        runs: dict[str, Any] = {}

        async def cell() -> None:
            runs["loop"] = fgrl.run(tmp_path / "asked.yaml", runs=tmp_path / "one", progress=False)

        def work() -> None:
            runs["thread"] = fgrl.run(tmp_path / "asked.yaml", runs=tmp_path / "two", progress=False, page=False)

        asyncio.run(cell())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
        assert len(server.answered) == 2
    for run in (runs["loop"], runs["thread"]):
        assert run.stages["answers"].summary["answered"] == 2
    assert [runs[name].report is None for name in ("loop", "thread")] == [False, True]


def test_a_component_of_this_process_cannot_run_in_processes_of_its_own(world: Path) -> None:
    with pytest.raises(fgrl.base.errors.UsageError, match="put the component into a file"):
        fgrl.run(world / "vowels.yaml", {"stages.policy.train.devices": 2}, runs=world / "runs")


def test_a_name_that_fgrl_uses_is_reported_where_it_is_registered() -> None:
    with scratch(), pytest.raises(ValueError, match='the name "token" of kind segmenter is taken'):

        @fgrl.register("token")
        class Own(Segmenter):
            """Taken."""

            def starts(self, view: Any) -> Any:
                return view.mask


def test_a_component_among_the_overrides_has_the_settings_that_it_was_given() -> None:
    judge = LLMJudge(client=OpenAI(model="m"), prompt="p.txt")
    (text,) = override_texts({"stages.a.judge": judge})
    given = json.loads(text.partition("=")[2])
    assert {name for name in given if name != "version"} == {"name", "client", "prompt"}
    assert {name for name in given["client"] if name != "version"} == {"name", "model"}
