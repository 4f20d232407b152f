"""The small recipes of Text2Grad for answers and for programs, from prompts to the report, on the tiny random model.

A random model writes no JSON, so the critic of the policy is the program that annotates texts by their request (which marks
nothing in a program).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_recipes import ADDRESSES

from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.registry import name_of
from fgrl.types import Pairs, Report, Samples

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "prompts"
LIMITS = {
    "sample": ["sampling.max_new_tokens=12"],
    "finetune": ["train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4"],
    "rl": ["algorithm.epochs=1", "rollout.batch_size=4", "rollout.sampling.max_new_tokens=12",
           "train.iterations=2", "train.batch_size=4", "train.micro_batch_size=4"],
    "evaluate": ["prompts.limit=4", "sampling.max_new_tokens=12"],
    "grade": ["resamples=100"],
    "annotate": ["max_missing=1.0"],
}  # fmt: skip
PROMPT_LIMITS = {
    "qa": ["vars.questions.limit=8", "stages.drafts.prompts.limit=6", "stages.held_drafts.prompts.limit=6"],
    "code": [
        "vars.problems.limit=8",
        "vars.annotated_problems.limit=6",
        "vars.paired_problems.limit=6",
        "vars.held_out_problems.limit=6",
    ],
}
CRITIC = PROMPTS / "critique_by_request.txt"
RUN = [("qa", ""), ("qa", "no_cot"), ("qa", "ilf"), ("qa", "ppo"), ("code", ""), ("code", "ilf")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text2grad") / "runs"


def reduced(task: str, row: str, model_dir: Path) -> Recipe:
    """The recipe with the tiny model, the program as critic, and little to do; nothing else of it is changed."""
    address = ADDRESSES[f"small/text2grad_{task}{row and '_'}{row}"]
    start = [f"vars.llm={model_dir}", f"vars.critic_base={model_dir}", "vars.lora={r: 2, last_blocks: 1}"]
    if row not in ("ppo", "dpo", "ilf", "base"):
        start += [f"vars.critic={{name: loopback_critic, prompt: {CRITIC}}}", f"vars.critic_prompt={CRITIC}"]
    stages = load(address, start).data["stages"]
    limits = [f"stages.{name}.{limit}" for name, stage in stages.items() for limit in LIMITS.get(stage["name"], [])]
    limits += [f"stages.{name}.per_prompt=2" for name, stage in stages.items() if stage.get("per_prompt", 1) > 1]
    limits += [limit for limit in PROMPT_LIMITS[task] if limit.startswith("vars") or limit.split(".")[1] in stages]
    return load(address, [*start, *limits])


@pytest.mark.parametrize(("task", "row"), RUN)
def test_it_runs(task: str, row: str, tiny_model_dir: Path, runs: Path) -> None:
    recipe = reduced(task, row, tiny_model_dir)
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    made = {stage.name: stage.dir for stage in plan(recipe, runs).stages}
    assert all(stage.cached for stage in plan(recipe, runs).stages)
    rows = read_log(made["policy"] / "log.jsonl")
    assert rows
    if name_of(recipe.stages["policy"])[1] == "rl":
        assert len(rows) == 2
        assert all(logged["max_log_ratio"] < 0.05 and logged["missing"] == 0 for logged in rows)
    if "annotations" in made:
        annotated = [
            response for sample in Samples(made["annotations"] / "out").read() for response in sample.responses
        ]
        assert len(annotated) == (6 if row == "ilf" else 12)
        critiques = [own for response in annotated for own in response.annotations]
        assert len(critiques) >= len(annotated) / 2
        assert all((own.critique is None) == (row == "no_cot") for own in critiques)
    if "refined" in made:
        refined = list(Samples(made["refined"] / "out").read())
        assert refined
        assert all(sample.chosen_response.meta["refines"] == 0 for sample in refined)
    elif "grade" in made:
        graded = Report(made["grade"] / "out").read()["metrics"]
        assert {"tokens", "spans"} <= set(graded)
        assert {"reward_model", "all_neutral", "reward_model_shuffled"} <= set(graded["tokens"])
    else:
        assert len(list(Pairs(made["pairs"] / "out").read())) >= 1
    page = summary.report.read_text(encoding="utf-8")
    assert all(name in page for name in recipe.stages)


def test_setting_b_has_the_total_of_setting_a_on_the_last_token(tiny_model_dir: Path, runs: Path) -> None:
    """Appendix A: the same critic on the same first rollout; only the placement differs."""
    logs = []
    for row in ("paper", "ppo_critic"):
        recipe = reduced("code", row, tiny_model_dir)
        assert execute(recipe, runs).exit == 0
        made = {stage.name: stage.dir for stage in plan(recipe, runs).stages}
        logs.append(read_log(made["policy"] / "log.jsonl")[0])
    assert logs[0]["reward"] == pytest.approx(logs[1]["reward"])
    assert logs[1]["early_credit"] == pytest.approx(1.0)
    assert logs[0]["early_credit"] > 1.0


def test_anchored_the_tests_decide_and_the_log_says_what_marks_tell(tiny_model_dir: Path, runs: Path) -> None:
    """A random model's programs fail, and the critic of texts has nothing to say about them."""
    recipe = reduced("code", "", tiny_model_dir)
    assert execute(recipe, runs).exit == 0
    made = {stage.name: stage.dir for stage in plan(recipe, runs).stages}
    for logged in read_log(made["policy"] / "log.jsonl"):
        assert (logged["reward"], logged["reward/outcome"], logged["missing"]) == (-1, -1, 0)
        assert logged["reward/missing_bad"] == logged["reward/blamed_bad"] == 0
        assert {"reward/marks_agree", "reward/blamed_good"}.isdisjoint(logged), "no program passed"
    tokens = Report(made["grade"] / "out").read()["metrics"]["tokens"]["reward_model"]
    assert tokens["missing_good"]["n"] == 0 < tokens["missing_bad"]["n"]


SHIPPED = ("outcome", "none", 0.95, "tokens")
ROWS_OF_CODE = {
    "": SHIPPED,
    "anchored_values": ("outcome", "learned", 0.95, "tokens"),
    "marks": ("marks", "none", 0.95, "tokens"),
    "marks_values": ("marks", "learned", 0.95, "tokens"),
    "undiscounted": ("outcome", "none", 1.0, "tokens"),
    "last_token": ("outcome", "none", 1.0, "last"),
    "last_token_decayed": ("outcome", "none", 0.95, "last"),
    "paper": ("marks", "learned", 0.95, "tokens"),
    "ppo_critic": ("marks", "learned", 0.95, "last"),
}
"""Total, values, lambda and placement of the rows that separate what keeps the policy from falling."""


def test_rows_of_code_differ_in_one_thing_each_and_those_of_the_paper_do_not_tell_the_outcome() -> None:
    for row, wanted in ROWS_OF_CODE.items():
        stages = load(ADDRESSES[f"small/text2grad_code{row and '_'}{row}"]).stages
        reward, algorithm = stages["policy"].reward, stages["policy"].algorithm
        assert (reward.total, algorithm.values, algorithm.lam, reward.placement) == wanted, row
        told = "critic_code.txt" if row in ("paper", "ppo_critic") else "critic_code_outcome.txt"
        asked = (reward, stages["reward_model"].data, stages["held_critiques"].annotator)
        assert {Path(each.prompt).name for each in asked} == {told}
        assert name_of(reward.outcome)[1] == "rubric_signed"


def test_rows_of_the_paper_have_the_main_recipes_rewards() -> None:
    for task in ("qa", "code"):
        main = load(ADDRESSES[f"text2grad_{task}"]).stages["policy"]
        for row, differs in (("paper", False), ("", True)):
            policy = load(ADDRESSES[f"small/text2grad_{task}{row and '_'}{row}"]).stages["policy"]
            ours, theirs = (
                (made.reward.total, made.reward.spread, made.reward.unmarked, made.algorithm.values, made.token_rewards)
                for made in (policy, main)
            )
            assert (ours != theirs) == differs


def test_trained_on_and_held_out_prompts_differ() -> None:
    for task, trained_on, held_out in (
        ("qa", ["sft.data", "drafts.prompts", "policy.prompts"], ["held_drafts.prompts", "evaluate.prompts"]),
        ("code", ["drafts.prompts", "policy.prompts"], ["held_drafts.prompts", "humaneval.prompts"]),
    ):
        stages = load(ROOT / "recipes" / "small" / f"text2grad_{task}.yaml").stages

        def ids(paths: list[str], stages: Any = stages) -> list[str]:
            readers = [getattr(stages[path.split(".")[0]], path.split(".")[1]) for path in paths]
            return [sample.id for reader in readers for sample in reader.read()]

        trained, held = ids(trained_on), ids(held_out)
        assert len(trained) == {"qa": 32 + 256 + 320, "code": 120 + 80}[task]
        assert len(set(held)) == {"qa": 96, "code": 60}[task]
        assert not set(trained) & set(held)


def test_no_small_stage_of_the_main_recipes_costs_money() -> None:
    for task in ("qa", "code"):
        recipe = load(ROOT / "recipes" / "small" / f"text2grad_{task}.yaml")
        clients = json.dumps(recipe.data["stages"])
        assert '"openai"' not in clients
        assert {name_of(stage)[1] for stage in recipe.stages.values()} >= {"annotate", "finetune", "rl", "grade"}
