"""Sweep files: W&B's format, what is drawn from its distributions, and the values of quick grids."""

from __future__ import annotations

import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from fgrl.base.errors import UsageError
from fgrl.experiments import recipe as recipes
from fgrl.experiments.recipe.files import Address, chosen
from fgrl.experiments.recipe.sweeps import Parameter, override, quick_sweep, read_sweep, split
from fgrl.experiments.recipe.tables import is_table_file
from fgrl.registry import Problems, dump

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = [path for path in sorted((ROOT / "sweeps").rglob("*.yaml")) if not is_table_file(path)]
SHARES = np.linspace(0.001, 0.999, 201)

UNIFORM = stats.uniform(2, 6)
ORACLES: dict[str, tuple[dict[str, Any], Any]] = {
    "uniform": ({"min": 2.0, "max": 8}, lambda u: UNIFORM.ppf(u)),
    "log_uniform": ({"min": -3.0, "max": 2.0}, lambda u: stats.loguniform(math.exp(-3), math.exp(2)).ppf(u)),
    "log_uniform_values": ({"min": 1e-6, "max": 1e-2}, lambda u: stats.loguniform(1e-6, 1e-2).ppf(u)),
    "inv_log_uniform_values": ({"min": 1e-6, "max": 1e-2}, lambda u: stats.loguniform(1e-6, 1e-2).ppf(u)),
    "inv_log_uniform": ({"min": -3.0, "max": 2.0}, lambda u: stats.loguniform(math.exp(-2), math.exp(3)).ppf(1 - u)),
    "normal": ({"mu": 1.5, "sigma": 0.5}, lambda u: stats.norm(1.5, 0.5).ppf(u)),
    "log_normal": ({"mu": 1.5, "sigma": 0.5}, lambda u: stats.lognorm(0.5, scale=math.exp(1.5)).ppf(u)),
    "beta": ({"a": 2.0, "b": 5.0}, lambda u: stats.beta(2, 5).ppf(u)),
    "q_uniform": ({"min": 2.0, "max": 8.0, "q": 0.5}, lambda u: np.round(UNIFORM.ppf(u) / 0.5) * 0.5),
    "q_normal": ({"mu": 3.0, "sigma": 2.0, "q": 0.25}, lambda u: np.round(stats.norm(3, 2).ppf(u) / 0.25) * 0.25),
    "q_log_uniform_values": ({"min": 1, "max": 100, "q": 2}, lambda u: np.round(stats.loguniform(1, 100).ppf(u) / 2) * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_what_is_drawn_are_the_quantiles_of_the_distribution(name: str) -> None:
    given, oracle = ORACLES[name]
    parameter = Parameter(distribution=name, **given)
    drawn = [parameter.at(float(share)) for share in SHARES]
    assert drawn == pytest.approx(oracle(SHARES), rel=1e-5, abs=1e-9)


def test_whole_numbers_and_categories_are_drawn_as_often_as_they_should_be() -> None:
    shares = np.random.default_rng(0).random(40_000)
    whole = Parameter(min=3, max=7)
    assert whole.kind == "int_uniform"
    counts = np.bincount([whole.at(float(share)) for share in shares], minlength=9)
    assert counts[[0, 1, 2, 8]].sum() == 0
    assert counts[3:8] / len(shares) == pytest.approx(np.full(5, 0.2), abs=0.01)
    weighted = Parameter(values=["a", None, [1, 2]], probabilities=[0.5, 0.2, 0.3])
    drawn = [weighted.at(float(share)) for share in shares]
    for value, probability in (("a", 0.5), (None, 0.2), ([1, 2], 0.3)):
        assert drawn.count(value) / len(drawn) == pytest.approx(probability, abs=0.01)
    assert Parameter(min=1, max=2.5).kind == "uniform"
    assert [whole.at(0.0), whole.at(1.0)] == [3, 7]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", ["1"]),
        ("a=1,2", [1, 2]),
        ("a=1e-3,0.5,x", [1e-3, 0.5, "x"]),
        ("a=true,null", [True, None]),
        ("a=[1,2]", ["[1,2]"]),
        ("a=[1,2],[3]", [[1, 2], [3]]),
        ("a={name: p, q: [1, 2]},none", [{"name": "p", "q": [1, 2]}, "none"]),
        ("a='x,y'", ["'x,y'"]),
        ('a="x,y",z', ["x,y", "z"]),
        ("a=don't,stop", ["don't", "stop"]),
        ("a=\"{line}, and more\"", ['"{line}, and more"']),
    ],
)  # fmt: skip
def test_commas_separate_values_outside_of_brackets_and_quotes(text: str, values: list[Any]) -> None:
    assert split(text) == values


@pytest.mark.parametrize("text", ["a=x, y", "a=1,,2", "a=1,", "a=,1", "a=1,000", "a=12,000,500", "a=1,1", "a=x,x"])
def test_what_may_be_one_text_is_refused_with_both_ways_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape("one text is written a='\"")):
        split(text)


def test_a_quick_grid_keeps_the_other_overrides() -> None:
    made = quick_sweep("r", ["r.yaml"], ["a.b=1,2", "seed=3", "c=x,y"])
    assert made is not None
    assert made.words() == ["r.yaml", "seed=3"]
    assert {name: each.values for name, each in made.parameters.items()} == {"a.b": [1, 2], "c": ["x", "y"]}
    assert quick_sweep("r", ["r.yaml"], ["a=1", "b=[1,2]"]) is None
    with pytest.raises(UsageError, match="set twice"):
        quick_sweep("r", ["r.yaml"], ["a=1,2", "a=3"])


def test_a_row_or_another_recipe_is_chosen_by_an_override() -> None:
    first = Address(Path("a.yaml"))
    assert chosen(first, ["x=1", "row=aon"]) == (Address(Path("a.yaml"), "aon"), ["x=1"])
    assert chosen(first, ["recipe=b.yaml::r", "x=1"]) == (Address(Path("b.yaml"), "r"), ["x=1"])
    assert chosen(first, ["row=s", "recipe=b.yaml"]) == (Address(Path("b.yaml"), "s"), [])
    assert chosen(Address(Path("a.yaml"), "r"), ["row=null"]) == (first, [])
    small = ROOT / "recipes" / "small"
    loaded = recipes.load(small / "segment_ppo.yaml", [f"recipe={small / 'length.yaml'}", "row=more_kl"])
    assert loaded.address == f"{small / 'length.yaml'}::more_kl"


BROKEN = {
    "parameters: {a: {values: [1], min: 2}}\nmethod: gird": ["1:", "method", "grid"],
    "parameters: {a: {min: 1}}\nmethod: random": ["wants `min` and `max`"],
    "parameters: {a: {distribution: unifrom, min: 1, max: 2}}\nmethod: random": ['unknown distribution "unifrom"'],
    "parameters: {a: {distribution: log_uniform_values, min: 0, max: 2}}\nmethod: random": ["above 0"],
    "parameters: {a: {values: [1, 2], probabilities: [0.5]}}\nmethod: random": ["1 together"],
    "parameters: {a: {}}\nmethod: grid": ["`value`, `values`"],
    "parameters: {a: {value: 1}}\nmethod: grid\nearly_terminate: {type: hyperband}": ["`min_iter`, or `max_iter` and `s`"],
    "parameters: {a: {min: 0.1, max: 1.0}}\nmethod: grid": ["parameters.a", "uniform has no end"],
    "parameters: {a: {min: 0.1, max: 1.0}}\nmethod: bayes": ["method: bayes needs `metric`"],
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_a_mistake_in_a_sweep_file_is_explained(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f'{text}\ncommand: [fgrl, run, r.yaml, "${{args}}"]\n')
    with pytest.raises((Problems, UsageError)) as error:
        read_sweep(file)
    for words in BROKEN[text]:
        assert words in str(error.value)


def test_a_command_without_a_place_for_the_parameters_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("parameters: {a: {value: 1}}\nmethod: grid\ncommand: [fgrl, run, r.yaml]\n")
    with pytest.raises(UsageError, match="args_no_hyphens"):
        read_sweep(file).words()


# -- the files under sweeps/ -------------------------------------------------------------------------------------------


def settings(recipe: recipes.Recipe) -> dict[str, Any]:
    return {name: dump(stage, for_key=True) for name, stage in recipe.stages.items()}


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: str(file.relative_to(ROOT / "sweeps")))
def test_a_shipped_sweep_passes_wandb_s_schema(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install 'fgrl[dev]'")
    pytest.importorskip("sweeps.config", reason="needs sweeps: pip install 'fgrl[dev]'")
    schema = json.loads((files("sweeps.config") / "schema.json").read_text(encoding="utf-8"))
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "method": "gird"}, schema)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: str(file.relative_to(ROOT / "sweeps")))
def test_what_wandb_s_agent_sends_is_what_fgrl_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent writes `{name}={value}` with Python's text of the value; both ways lead to the same stages."""
    monkeypatch.chdir(ROOT)
    sweep = read_sweep(file)
    at = {name: [each.at(share) for share in (0.0, 0.99)] for name, each in sweep.parameters.items()}
    for place in (0, 1):
        values = {name: drawn[place] for name, drawn in at.items()}
        address, *fixed = [word for word in sweep.words() if word not in ("--wandb", "fgrl")]
        ours = recipes.load(address, [*fixed, *(override(name, value) for name, value in values.items())])
        agent = pytest.importorskip("wandb.sdk.launch.sweeps.utils", reason="needs wandb: pip install 'fgrl[dev]'")
        sent = agent.create_sweep_command_args({"args": {name: {"value": value} for name, value in values.items()}})
        theirs = recipes.load(address, [*fixed, *sent["args_no_hyphens"]])
        assert settings(ours) == settings(theirs)
        assert ours.seed == theirs.seed


@pytest.mark.parametrize("value", [True, 1e-5, [1, 2], ["a", "b"], "text", {"name": "x"}])
def test_values_of_any_kind_arrive_the_same_from_both(value: Any) -> None:
    agent = pytest.importorskip("wandb.sdk.launch.sweeps.utils", reason="needs wandb: pip install 'fgrl[dev]'")
    (sent,) = agent.create_sweep_command_args({"args": {"vars.cutoff": {"value": value}}})["args_no_hyphens"]
    mine = override("vars.cutoff", value)
    small = ROOT / "recipes" / "small" / "segment_ppo.yaml"
    read = []
    for text in (mine, sent):
        try:
            read.append(recipes.load(small, [text]).data["vars"]["cutoff"])
        except Problems as problems:
            read.append(re.sub(r"(?m)^ *\|.*$|command line.*?: ", "", str(problems)).splitlines()[0])
    assert read[0] == read[1]
