"""Every shipped recipe: which there are, that each is right, and that the small ones are the paper's in small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fgrl import registry
from fgrl.cli import app
from fgrl.experiments.pipeline import plan
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.planning import Plan
from fgrl.experiments.recipe import Recipe, load, rows

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "recipes"
FILES = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.yaml"))}
ADDRESSES = {f"{name}_{row}": f"{path}::{row}" for name, path in FILES.items() for row in rows(path)} | {
    name: str(path) for name, path in FILES.items()
}
"""Every recipe by name: each file, and each row of each file, inherited ones too."""

PAPER = {
    "Table 1": ["phi3_backbone", "phi3_bandit", "phi3_sentence", "phi3_token", "phi3", "phi3_bandit_as_segment",
                "phi3_segment_as_bandit"],
    "Table 2": ["phi31_sft_backbone", "phi31_sft_bandit", "phi31_sft_token", "phi31_sft",
                "llama3_backbone", "llama3_bandit", "llama3_token", "llama3"],
    "Table 3": ["phi3_dpo", "phi31_sft_dpo", "llama3_dpo"],
    "Table 4": ["phi3_ngram2", "phi3_ngram5", "phi3_ngram10", "phi3_ngram20"],
    "Table 5": ["phi3_no_normalizer", "phi3_global_normalizer", "phi3_last_normalizer"],
    "Table 6": ["phi3_no_interpolation", "phi3_repeat"],
    "Figure 3": ["phi3_cutoff_15", "phi3_cutoff_20", "phi3_cutoff_225"],
}  # fmt: skip
ROWS = {f"segment_ppo_{row}": table for table, rows in PAPER.items() for row in rows}
RTT_ROWS = ["", "_aon", "_rl_csr", "_rl_aon", "_inter", "_sft", "_dpo"]
"""Of every backbone."""
RTT_ABLATIONS = ["random", "uniform", "greedy", "token_weight_025", "token_weight_075", "token_weight_100"]
RTT_CURVES = ["qwen3_figure4", "qwen3_figure4_rl_csr", "llama32_figure5", "llama32_figure5_rl_csr"]
"""What is measured while a policy trains."""
RTT = (
    [f"rtt_{one}{row}" for one in ("qwen3", "qwen25", "llama32") for row in RTT_ROWS]
    + [f"rtt_qwen3_{row}" for row in RTT_ABLATIONS]
    + [f"rtt_{row}" for row in RTT_CURVES]
)
RLA = ["rla_llama3", "rla_llama3_base", "rla_llama3_ce", "rla_llama3_rlaif", "rla_llama3_sft"]

T2G_ROWS = {
    "summarize": {
        "": "Tables 1, 2, 8 and 11, Text2Grad",
        "base": "Table 8, Base",
        "sft": "Tables 2 and 8, SFT",
        "sft_reflection": "Tables 2 and 8, SFT + Reflection",
        "dpo": "Table 2, DPO",
        "ppo": "Tables 2 and 8, PPO",
        "ppo_critic": "Appendix A, setting B",
        "prm_ppo": "Tables 2 and 17, PRM-PPO",
        "dense": "Table 2, Dense Reward; Table 11, Dense Token Reward",
        "ilf": "Table 2, ILF",
        "no_cot": "Table 2, Text2Grad w/o CoT; Tables 1, 18 and 19, No CoT",
        "token_importance": "Table 11, Token Importance",
        "linear_decay": "Table 11, Linear Decay",
        "inside": "(no table)",
        "human": "Table 11, Human Feedback",
        "released": "the authors' release",
        "table12": "Tables 12 and 14",
        "table13": "Table 13",
        "table16": "Tables 1 and 16, human accuracy",
        "figure3": "Figure 3",
        "figure6": "Figure 6, with CoT",
        "figure6_no_cot": "Figure 6, without CoT",
    },
    "qa": {
        "": "Tables 1, 4 and 6, Text2Grad",
        "base": "Table 4, Base",
        "dpo": "Table 4, DPO",
        "ppo": "Table 4, PPO",
        "ppo_critic": "Appendix A, setting B",
        "ilf": "Table 4, ILF",
        "no_cot": "Table 4, Text2Grad w/o CoT; Table 1, No CoT",
        "released": "the authors' release",
        "table12": "Tables 12 and 14",
        "table13": "Table 13",
        "table16": "Tables 1 and 16, human accuracy",
    },
    "code": {
        "": "Tables 1, 3 and 7, Text2Grad",
        "base": "Table 3, Llama-3.1-Instruct",
        "dpo": "Table 3, DPO",
        "ppo": "Table 3, PPO",
        "ppo_critic": "Appendix A, setting B",
        "prm_ppo": "Tables 3 and 17, PRM-PPO",
        "ilf": "Table 3, ILF",
        "no_cot": "Table 3, Text2Grad w/o CoT; Table 1, No CoT",
        "unmarked_zero": "section 3.3",
        "released": "the authors' release",
        "table12": "Tables 12 and 14",
        "table13": "Table 13",
        "table16": "Tables 1 and 16, human accuracy",
    },
}  # fmt: skip
"""Rows of Text2Grad by task, with what they say they are."""
T2G = {f"text2grad_{task}{row and '_'}{row}": of for task, rows in T2G_ROWS.items() for row, of in rows.items()} | {
    "text2grad_summarize_external": "Tables 2 and 8, ChatGPT-3.5, GPT-4o, human reference",
    "text2grad_code_external": "Table 3, Llama-3.2-Instruct, CodeLlama, Gemini Pro",
    "text2grad_qa_external": "Table 4, GPT-4, GPT-3.5",
    **{f"text2grad_{task}_table1": "Table 1, Win-Rate" for task in T2G_ROWS},
    **{
        f"text2grad_{task}_mistral{row and '_'}{row}": f"Table 5, {column}, {label}"
        for task, column in {"summarize": "Summarization", "qa": "QA", "code": "Code"}.items()
        for row, label in {"": "Text2Grad", "base": "Base", "ppo": "PPO", "dpo": "DPO"}.items()
    },
}
T2G_SMALL = [f"text2grad_{task}{row and '_'}{row}" for task in ("summarize", "qa", "code") for row in T2G_ROWS[task]]
"""Those of the files that have a small sibling."""
SPAN_ROWS = {
    "base": "Table 2, base",
    "sft": "Table 2, a* SFT",
    "ab": "Table 2, (a, b)",
    "first_edit": "Table 2, (a0, a1)",
    "full_rewrite": "Table 2, (a0, a*)",
    "stepwise_ds": "Table 2, (ai, ai+1) down-sampled",
    "stepwise": "Table 2, (ai, ai+1)",
    "one_step_per_call": "(no table)",
}
"""Rows of span feedback, with what they say they are."""
SPAN = {
    "span_chains_responses": "section 3, appendix A",
    "span_chains": "Table 2, stepwise",
    **{f"span_chains_{row}": of for row, of in SPAN_ROWS.items()},
    "span_chains_table2": "Table 2",
    "span_chains_table2_human": "Table 2, ELO_H",
    "span_chains_grid": "appendix D",
    **{f"span_chains_grid_{row}": of for row, of in SPAN_ROWS.items()},
}
SPAN_SMALL = ["span_chains_responses", "span_chains", *(f"span_chains_{row}" for row in SPAN_ROWS), "span_chains_table2",
              "span_chains_table2_human"]  # fmt: skip
"""Those that have a small sibling."""
OWN = [
    "small/text2grad_summarize_endpoint", "small/text2grad_summarize_centered", "small/text2grad_summarize_min_length",
    "small/text2grad_qa_centered", "small/text2grad_qa_min_length", "small/text2grad_qa_paper", "small/text2grad_qa_foreign_drafts",
    *(f"small/text2grad_code_{row}" for row in (
        "centered", "paper", "anchored_values", "marks", "marks_values", "undiscounted", "last_token", "last_token_decayed",
    )),
]  # fmt: skip
"""Rows of small recipes alone."""
WITHOUT_PAPER = {
    "small/agent", "small/function_rewards", "small/hacked", "small/length", "small/text2grad_antonyms", "small/text2grad_kinds",
    "small/word_segments",
}  # fmt: skip
"""Small recipes that show a feature, and no paper's row. That they and their rows load is checked with the inherited rows."""

OTHER_MACHINES = ("paged", "vllm", "vllm_uncorrected", "vllm_ahead", "shards")
"""Rows that differ in the engine or the strategy alone (tests/recipe/test_machine_engines.py), and are of no paper."""

JUDGED = ("alpaca_eval", "arena_hard", "mt_bench")
"""Stages that ask GPT-4o; the small recipes have none."""
PROGRAMS = ("mbpp", "mbpp_plus")
"""Figure 5 of the segment paper, for two of its three backbones."""
PUBLIC = (*JUDGED, "leaderboard", "averages", *PROGRAMS)
"""What is measured on public benchmarks, which the small recipes have none of."""


def small(name: str) -> str:
    """The sibling that runs on SmolLM2."""
    short = name.replace("rla_llama3", "rla").replace("rtt_qwen3", "rtt").replace("segment_ppo_phi3_", "segment_ppo_")
    return "small/" + short.replace("segment_ppo_phi3", "segment_ppo").replace(
        "segment_ppo1_sft", "segment_ppo_phi31_sft"
    )


@cache
def loaded(name: str, *overrides: str) -> Recipe:
    """A recipe; the one checkpoint and the one file that are not public are stood in for. Tests share it and only read it."""
    return load(FOUND[name], [*stand_ins(name), *overrides])


def stand_ins(name: str) -> list[str]:
    """Values for what a recipe's user has to set."""
    if name.startswith("segment_ppo_phi31"):
        return ["vars.sft=standing-in"]
    if "span_chains" in name:
        wants = [] if name.startswith("small/") or name.endswith(("_responses", "_base")) else ["vars.annotations"]
        wants += ["vars.human_verdicts"] if name.endswith("_human") else []
        return [f"{value}={FOLDER / 'small' / 'span_annotations.jsonl'}" for value in wants]
    file = FOLDER / "small" / "definitions.jsonl"
    waits = {"_human": "vars.human_spans", "_table16": "vars.human_verdicts"} if "text2grad" in name else {}
    return [f"{value}={file}" for end, value in waits.items() if name.endswith(end)]


FOUND = {
    name: ADDRESSES[name]
    for name in [
        "quickstart",
        *ROWS,
        *RLA,
        *RTT,
        *T2G,
        *SPAN,
        *map(small, [*ROWS, *RLA, *RTT, *T2G_SMALL, *SPAN_SMALL]),
        *OWN,
    ]
}
"""The rows of the papers' tables and their small siblings."""


def test_every_row_of_the_paper_has_a_small_sibling_and_no_row_is_written_that_no_paper_has() -> None:
    assert len(ROWS) == 30
    assert len(set(map(small, ROWS))) == 30
    assert len(RTT) == 31
    assert len(FOUND) == 291
    assert set(FILES) <= set(FOUND) | WITHOUT_PAPER
    assert set(FILES) >= WITHOUT_PAPER
    assert set(ADDRESSES) >= WITHOUT_PAPER
    written = {
        f"{name}_{row}"
        for name, path in FILES.items()
        if name not in WITHOUT_PAPER
        for row in yaml.safe_load(path.read_text(encoding="utf-8")).get("rows", {})
        if row not in OTHER_MACHINES
    }
    assert written <= set(FOUND)


def test_a_row_of_any_file_is_right_in_every_file_that_inherits_it() -> None:
    inherited = sorted(set(ADDRESSES) - set(FOUND))
    assert len(inherited) > 50
    for name in inherited:
        assert load(ADDRESSES[name], stand_ins(name)).stages, name


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_which_one_it_is(name: str) -> None:
    about = loaded(name).about
    assert ROWS[name] in about
    if name != "segment_ppo_phi3":
        assert about.removesuffix(".").split(". ")[0] in loaded(small(name)).about


def test_validate_lets_every_recipe_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once and without a value for the checkpoint that is not public; the message names what to set."""
    monkeypatch.chdir(ROOT)
    files = [str(Path(address).relative_to(ROOT)) for address in FOUND.values()]
    result = CliRunner().invoke(app, ["validate", "--json", *files])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [each["recipe"] for each in told["recipes"] if each["ok"]] == files
    waiting = {one["recipe"]: one["needs"] for one in told["recipes"] if "needs" in one}
    assert waiting == {
        str(Path(FOUND[name]).relative_to(ROOT)): [value.partition("=")[0] for value in stand_ins(name)]
        for name in FOUND
        if stand_ins(name)
    }
    assert len(waiting) == 32


def test_validate_says_how_many_recipes_are_valid_and_what_they_wait_for() -> None:
    waits = FOUND["segment_ppo_phi31_sft"]
    result = CliRunner().invoke(app, ["validate", FOUND["quickstart"], FOUND["small/rla"], waits])
    assert result.exit_code == 0, result.output
    assert f"{waits}: ok, needs vars.sft=..." in result.output.splitlines()
    assert "3 of 3 recipes are valid" in result.output


def test_validate_notices_one_wrong_recipe_among_all(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        f'extends: {FOUND["segment_ppo_phi3"]}\nabout: "x"\nstages: {{policy: {{algorithm: {{clipp: 0.2}}}}}}\n'
    )
    result = CliRunner().invoke(app, ["validate", str(FOUND["quickstart"]), str(wrong)])
    assert result.exit_code == 2
    assert "wrong.yaml:3" in result.output
    assert 'did you mean "clip"' in result.output


@pytest.mark.parametrize(
    "name", ["quickstart", "segment_ppo_phi3", "rtt_qwen3", "rla_llama3", "text2grad_qa", "small/rtt", "small/rla"]
)
def test_a_recipe_plans_with_a_local_model(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Every recipe is planned in test_plans_without_network.py, with models that are not on this machine."""
    variable = "sft" if "segment" in name or name == "quickstart" else "llm"
    recipe = loaded(name, f"vars.{variable}={tiny_model_dir}")
    check_plan(plan(recipe, tmp_path / "runs"), recipe)
    assert str(tiny_model_dir) in json.dumps(recipe.data["stages"])


def check_plan(made: Plan, recipe: Recipe) -> None:
    """Nothing is cached, no two stages have one key, and each stage comes after what it needs."""
    assert [stage.name for stage in made.stages] == list(recipe.stages)
    assert not any(stage.cached for stage in made.stages)
    assert len({stage.key for stage in made.stages}) == len(made.stages)
    only_samples = recipe.path == FOLDER / "small" / "span_chains_responses.yaml"
    assert made.stages[-1].makes == ("Samples" if only_samples else "Report")
    order = list(recipe.stages)
    assert all(order.index(other) < order.index(stage.name) for stage in made.stages for other in stage.upstream)


# -- small siblings ----------------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path, value


def settings(recipe: Recipe) -> dict[str, Any]:
    """Every setting of every stage, without those of hardware, the models that are started from, and what is measured."""
    dumped = {name: registry.dump(stage) for name, stage in recipe.stages.items() if name not in PUBLIC}
    return {path: value for path, value in leaves(dumped) if not path.endswith((".base", ".metrics"))}


def changes(recipe: Recipe, parent: Recipe) -> dict[str, Any]:
    """Where two recipes differ: {path: what the first has there}; of stages that it has not, only that."""
    mine, theirs = settings(recipe), settings(parent)
    gone = {stage: "gone" for stage in parent.stages if stage not in (*recipe.stages, *PUBLIC)}
    return gone | {
        path: mine.get(path, "absent")
        for path in mine.keys() | theirs
        if mine.get(path) != theirs.get(path) and path.split(".")[0] not in gone
    }


@pytest.mark.parametrize("name", ROWS)
def test_a_small_sibling_has_the_stages_of_the_paper_s_row(name: str) -> None:
    """The same names and components. It makes its preference pairs itself: `samples` and `pairs`."""
    big, little = loaded(name), loaded(small(name))
    kinds = [
        {
            stage: registry.name_of(made)[1]
            for stage, made in recipe.stages.items()
            if stage not in ("samples", "pairs", *PUBLIC)
        }
        for recipe in (big, little)
    ]
    assert kinds[0] == kinds[1]
    assert {"samples", "pairs"}.isdisjoint(big.stages)
    assert {"samples", "pairs"}.isdisjoint(little.stages) == name.endswith("backbone")
    assert all(
        registry.dump(made)["model"]["base"] == "smollm2-135m-instruct"
        for stage, made in little.stages.items()
        if stage not in ("pairs", "evaluate")
    )


@pytest.mark.parametrize("name", [name for name in ROWS if name != "segment_ppo_phi3"])
def test_an_ablation_changes_the_same_lines_in_small(name: str) -> None:
    """What a row changes in the paper's main recipe its sibling changes in the small one, to the same values."""
    big = changes(loaded(name), loaded("segment_ppo_phi3"))
    little = changes(loaded(small(name)), loaded("small/segment_ppo"))
    little = {path: value for path, value in little.items() if not path.startswith(("samples", "pairs"))}
    assert big or name == "segment_ppo_phi31_sft", "an ablation that changes nothing"
    if name.endswith("dpo"):  # another kind of stage: its data and hardware are as different as the recipes
        big, little = (
            {p: v for p, v in one.items() if not p.startswith("policy") or p.startswith("policy.algorithm")}
            for one in (big, little)
        )
        assert big["policy.algorithm.name"] == "dpo"
    if "cutoff" not in name:  # a change of segmenter takes the cutoff that the recipe has
        big, little = ({p: v if not p.endswith(".cutoff") else "own" for p, v in o.items()} for o in (big, little))
    assert little == big


CUTS = {"cutoff_15": 1.5, "cutoff_20": 2.0, "cutoff_225": 2.25}


@pytest.mark.parametrize("name", [name for name in FOUND if not re.search("rla|rtt|text2grad|span_chains", name)])
def test_the_cutoff_is_the_row_s_own(name: str) -> None:
    recipe = loaded(name)
    own = next((cut for end, cut in CUTS.items() if name.endswith(end)), None)
    wanted = own or (2.0 if "llama3" in name else 2.5 if name.startswith(("small", "quick")) else 1.75)
    assert recipe.data["vars"]["cutoff"] == wanted
    cuts = {
        value
        for path, value in leaves({n: registry.dump(s) for n, s in recipe.stages.items()})
        if path.endswith("cutoff")
    }
    assert cuts <= {wanted}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_judged_as_in_the_paper_and_no_small_one_costs_money(name: str, tmp_path: Path) -> None:
    """Both orders of 805 and 500 comparisons with the benchmarks' own baselines, two turns of 80 conversations."""
    recipe = loaded(name)
    in_figure_5 = name.startswith(("segment_ppo_phi31", "segment_ppo_llama3"))
    assert set(PUBLIC) & set(recipe.stages) == set(PUBLIC) - (set() if in_figure_5 else set(PROGRAMS))
    assert set(PUBLIC).isdisjoint(loaded(small(name)).stages)
    models = list(recipe.stages["evaluate"].models)
    assert models == (["sft"] if name.endswith("backbone") else ["sft", "policy"])
    wanted = {"alpaca_eval": (805 * 2, ["gpt4_turbo"]), "arena_hard": (500 * 2, ["gpt4_0314"]), "mt_bench": (160, [])}
    for stage, (calls, given) in wanted.items():
        made = recipe.stages[stage]
        assert list(made.models) == models
        assert list(made.given) == given
        assert made.files == [stage]
        judge = made.metrics[0]
        assert judge.client.model.startswith("gpt-4o")
        assert judge.title.split(",")[0] in ("pairwise", "marks")  # never the benchmark's own number by name
        planned = made.estimate(Peek(tmp_path, None, {}))["calls"]
        assert planned["calls"] == calls * len(models) <= judge.client.max_calls
        assert 0 < planned["usd"] <= judge.client.budget_usd, "the budget covers the worst case that a plan prints"


def test_mt_bench_has_the_temperatures_of_its_categories() -> None:
    made = loaded("segment_ppo_phi3").stages["mt_bench"]
    assert made.temperatures == {"writing": 0.7, "roleplay": 0.7, "stem": 0.1, "humanities": 0.1}
    assert made.sampling.temperature == 0.0, "extraction, math, coding, reasoning"


def test_table_7_s_tasks_have_the_leaderboard_s_examples() -> None:
    tasks = {task.task: task.num_fewshot for task in loaded("segment_ppo_phi3").stages["leaderboard"].tasks}
    assert tasks == {
        "arc_challenge": 25, "truthfulqa_mc2": None, "winogrande": 5, "hellaswag": 10, "mmlu": 5, "gsm8k": 5
    }  # fmt: skip
    (part,) = loaded("segment_ppo_phi3").stages["averages"].averages["leaderboard"]
    assert [number.partition(".")[0] for number in part.numbers] == list(tasks)


REASONING = re.compile(r"(gpt-[56]|o\d)")
UNLESS_ASKED = re.compile(r"gpt-5\.2")
"""Does not reason unless it is asked to, and then takes a temperature."""


@pytest.mark.parametrize("name", [name for name in FOUND if not name.startswith(("small", "quick"))])
def test_openai_s_reasoning_models_are_sent_what_they_accept(name: str) -> None:
    """They refuse `max_tokens`, and a temperature other than their own."""
    asked = []
    for stage in loaded(name).stages.values():
        for _path, part in registry.walk(stage):
            client = getattr(part, "client", None)
            if client is not None and REASONING.match(str(getattr(client, "model", ""))) and client.base_url is None:
                free = UNLESS_ASKED.match(client.model)
                asked.append((client.max_tokens_name, *([] if free else [client.temperature, part.temperature])))
    assert set(asked) <= {("max_completion_tokens", None, None), ("max_completion_tokens",)}
    assert asked or "rtt" not in name


def test_the_paper_s_numbers() -> None:
    """Tables 8 and 9."""
    recipe = loaded("segment_ppo_phi3")
    reward_model, policy = recipe.stages["reward_model"], recipe.stages["policy"]
    assert (reward_model.train.lr, reward_model.train.batch_size, reward_model.train.epochs) == (1e-6, 128, 1)
    assert reward_model.algorithm.segmenter.cutoff == 1.75
    assert (policy.train.lr, policy.train.critic_lr, policy.train.epochs) == (5e-7, 9e-6, 2)
    assert (policy.rollout.batch_size, policy.train.batch_size) == (1024, 128)
    assert (policy.algorithm.clip, policy.algorithm.value_clip, policy.algorithm.kl_coef) == (0.2, 0.25, 0.01)
    assert (policy.algorithm.gamma, policy.algorithm.lam, policy.rollout.sampling.temperature) == (1.0, 0.95, 1.0)
    assert loaded("segment_ppo_phi3_bandit").stages["policy"].algorithm.value_clip == 0.2
    llama = loaded("segment_ppo_llama3")
    assert (llama.stages["policy"].train.epochs, llama.data["vars"]["cutoff"]) == (1, 2.0)


def test_the_quickstart_is_the_small_recipe_sized_down() -> None:
    sized = changes(loaded("quickstart"), loaded("small/segment_ppo"))
    assert sized.pop("policy.algorithm.kl_coef") == 0.5  # closer to its start: its answers are to be read
    assert sized.pop("policy.train.lr") == 1e-3  # of adapters in a third of the blocks
    sizes = (".limit", ".iterations", ".per_prompt", ".batch_size", ".max_new_tokens", ".last_blocks")
    assert {path for path in sized if not path.endswith(sizes) and not path.startswith("policy.critic")} == set()
    metrics = {registry.name_of(metric)[1] for metric in loaded("quickstart").stages["evaluate"].metrics}
    assert metrics == {"rule", "length", "repetition"}, "those that take no pass of a model"
    assert loaded("quickstart").stages["evaluate"].prompts.limit >= 64


# -- sweeps ------------------------------------------------------------------------------------------------------------

SWEEPS = {"cutoff": {"vars.cutoff": [1.5, 1.75, 2.0, 2.25]}}
METHODS = {"kl_coef": "segment", "kl_coef_bandit": "bandit", "kl_coef_token": "token"}
RLA_SWEPT = {
    "algorithm.clip",
    "algorithm.kl_coef",
    "algorithm.lam",
    "algorithm.missing_eos_penalty",
    "algorithm.epochs",
    "train.lr",
}


def test_the_sweeps_that_there_are() -> None:
    assert {path.stem for path in (ROOT / "sweeps").glob("*.yaml")} == {
        *SWEEPS,
        *METHODS,
        "rla_ppo",
        "rtt_token_weight",
    }


def test_the_sweep_of_rla_is_the_appendix_s_six_hyper_parameters() -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / "rla_ppo.yaml").read_text(encoding="utf-8"))
    assert sweep["method"] == "bayes"
    start, *overrides, end = sweep["command"][4:]
    assert [*sweep["command"][:4], start, end] == [
        "${program}", "run", "recipes/rla_llama3.yaml", "--wandb", "fgrl", "${args_no_hyphens}"
    ]  # fmt: skip
    assert set(sweep["parameters"]) == {f"stages.policy.{key}" for key in RLA_SWEPT}
    plain = settings(loaded("rla_llama3"))
    for key, choice in sweep["parameters"].items():
        known = plain[key.removeprefix("stages.")]
        assert float(choice["min"]) <= known <= float(choice["max"])
        for value in (choice["min"], choice["max"]):
            point = settings(load(FOUND["rla_llama3"], [f"{key}={value}"]))
            assert point[key.removeprefix("stages.")] == float(value)
    # what is optimised is neither trained on nor what the tables measure
    stages = load(FOUND["rla_llama3"], overrides).stages
    (measured,) = {name for name, stage in stages.items() if registry.name_of(stage)[1] in ("evaluate", "lm_eval")}
    assert sweep["metric"]["name"] == f"{measured}/similarity.cosine"
    held, table = stages[measured].prompts, loaded("rla_llama3").stages[measured].prompts
    assert (held.split, table.split, held.limit) == ("train", "validation", 0.02 * stages["samples"].prompts.limit)
    assert held.skip >= max(stages[stage].prompts.limit for stage in ("samples", "policy"))


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_varies_what_its_recipe_has(name: str) -> None:
    """Each point is an override that `fgrl run` takes, in the form in which W&B's agent writes it."""
    sweep = yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert sweep["program"] == "fgrl"
    assert sweep["command"][:2] == ["${program}", "run"]
    assert sweep["command"][-1] == "${args_no_hyphens}"
    recipe = ROOT / sweep["command"][2]
    plain = load(recipe)
    assert set(sweep["parameters"]) == set(SWEEPS[name])
    for key, choices in sweep["parameters"].items():
        assert SWEEPS[name][key] in (None, choices["values"])
        assert len(set(choices["values"])) == len(choices["values"]) >= 4
        known = dict(leaves(plain.data))
        assert key in known
        for value in choices["values"]:
            point = load(recipe, [f"{key}={value}"])
            assert dict(leaves(point.data))[key] == value
            assert (settings(point) != settings(plain)) == (value != known[key])
    stage = sweep["metric"]["name"].split("/")[0]
    assert stage in plain.stages


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_figure_4_varies_the_kl_coefficient_of_three_methods_on_one_backbone(name: str, method: str) -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert [*sweep["command"][:2], sweep["command"][-1]] == ["${program}", "run", "${args_no_hyphens}"]
    recipe, row = ROOT / "recipes" / "segment_ppo_phi31_sft.yaml", {"segment": ""}.get(method, f"::{method}")
    assert str(ROOT / sweep["command"][2]) == f"{recipe}{row}"
    varied = sweep["parameters"].pop("stages.policy.algorithm.kl_coef")["values"]
    assert varied == [0.001, 0.003, 0.01, 0.03, 0.1]
    assert list(sweep["parameters"]) == ["vars.sft"], "the checkpoint, which is not public"
    point = load(f"{recipe}{row}", ["vars.sft=mine", "stages.policy.algorithm.kl_coef=0.03"])
    assert point.stages["policy"].algorithm.kl_coef == 0.03
    assert {"kl", "win_rate"} <= {registry.name_of(metric)[1] for metric in point.stages["alpaca_eval"].metrics}
    assert sweep["metric"]["name"] == "evaluate/kl.sum"
