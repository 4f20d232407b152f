"""`fgrl table` with a table file: recipes of given answers, which need no model, beside numbers that a paper prints."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from test_cli_compare import KEPT, fgrl, world  # noqa: F401 - a fixture
from tiny_recipe import write as write_recipe

from fgrl.base.errors import UsageError
from fgrl.experiments.recipe.tables import read_table_file
from fgrl.registry import Problems

TABLE = """about: "Answers without a comma & more"
published: numbers.yaml::1
recipes: {plain: plain.yaml, fine: fine.yaml}
columns:
  Kept (%): {number: evaluate/rule.kept, scale: 100}
  Words: {number: evaluate/length.words}
  Taste: {}
rows:
  Before: {recipe: plain, model: sft}
  Trained / Plain: {recipe: plain}
  Trained / Fine_1: {recipe: fine}
  Trained / By people: {reason: nobody has done it}
"""
NUMBERS = """title: "A Paper Made Up for Tests"
tables:
  "1":
    about: commas
    where: page 3
    model: A-70B
    budget: 1 epoch
    columns: [Kept (%), Words, Taste]
    rows:
      Before: ["20.0", "3", "–"]
      Trained: {Plain: ["40.00", "3", "7"], Fine_1: ["75.5 ↑35.5", "3", "8"], By people: ["99", "", "9"]}
"""


@pytest.fixture
def table(world: Path) -> Path:  # noqa: F811
    (world / "numbers.yaml").write_text(NUMBERS, encoding="utf-8")
    path = world / "table.yaml"
    path.write_text(TABLE, encoding="utf-8")
    return path


def printed(*words: object) -> str:
    result = fgrl("table", *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def told(*words: object) -> dict[str, Any]:
    return json.loads(printed(*words, "--format", "json"))


def changed(table: Path, **parts: Any) -> Path:
    content = yaml.safe_load(table.read_text(encoding="utf-8")) | parts
    table.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return table


def share(who: str) -> float:
    kept = KEPT[who]
    return 100 * sum(map(sum, kept)) / sum(map(len, kept))


def test_before_anything_has_run_the_published_numbers_stand_beside_what_runs_the_rest(table: Path) -> None:
    text = printed(table, "--seeds", "0,1")
    assert "  Fine_1     not run  75.5 ↑35.5" in text
    assert "paper: A Paper Made Up for Tests, Table 1 (page 3); A-70B; 1 epoch" in text
    assert [line for line in text.splitlines() if line.startswith("not run")] == [
        f"not run: fgrl run {who}.yaml seed={seed}" for who in ("plain", "fine") for seed in (0, 1)
    ]
    assert "By people: nobody has done it" in text


def test_ours_are_means_over_seeds_with_both_intervals_and_never_in_the_paper_s_column(table: Path) -> None:
    made = told(table, "--run", "--seeds", "0,1,2")
    before, plain, fine, people = made["rows"]
    assert (plain["group"], plain["row"], before["group"]) == ("Trained", "Plain", "")
    assert plain["ours"]["Kept (%)"]["mean"] == pytest.approx(share("plain"))
    assert fine["ours"]["Kept (%)"]["mean"] == pytest.approx(share("fine"))
    assert before["ours"]["Kept (%)"]["mean"] == pytest.approx(20.0)
    assert fine["ours"]["Kept (%)"]["low"] < share("fine") < fine["ours"]["Kept (%)"]["high"]
    assert set(fine["ours"]["Kept (%)"]["over_seeds"]) == {"low", "high"}
    assert fine["published"] == {"Kept (%)": "75.5 ↑35.5", "Words": "3", "Taste": "8"}
    assert people["ours"] == {"Kept (%)": None, "Words": None, "Taste": None}
    assert made["published"]["model"] == "A-70B"
    assert made["ours"]["seeds"] == [0, 1, 2]
    # again nothing is run
    assert told(table, "--run", "--seeds", "0,1,2") == made


def test_rows_are_computed_from_other_rows(table: Path) -> None:
    """A change in percent and a mean, of our numbers and of those of each seed; nothing of it before all rows have run."""
    rows = yaml.safe_load(TABLE)["rows"]
    plain, fine = "Trained / Plain", "Trained / Fine_1"
    rows |= {"+% Plain": {"derived": {"gain": fine, "over": plain}}, "Mean": {"derived": {"mean": [plain, fine]}}}
    text = printed(changed(table, rows=rows), "--seeds", "0,1,2")
    assert re.search(r"  \+% Plain +not run", text)
    made = told(table, "--run", "--seeds", "0,1,2")
    gain, mean = (row["ours"]["Kept (%)"] for row in made["rows"][-2:])
    assert gain["mean"] == pytest.approx(100 * (share("fine") / share("plain") - 1))
    assert mean["mean"] == pytest.approx((share("fine") + share("plain")) / 2)
    assert (gain["low"], gain["best"]) == (None, False)
    of_seed = [
        100 * sum(one) / len(one) + 100 * sum(two) / len(two)
        for one, two in zip(KEPT["fine"], KEPT["plain"], strict=True)
    ]
    half = 4.302653 * statistics.stdev(value / 2 for value in of_seed) / math.sqrt(3)
    assert mean["over_seeds"]["high"] - mean["mean"] == pytest.approx(half, rel=1e-4)
    for derived in (
        {"gain": fine},
        {"mean": [fine], "gain": fine, "over": plain},
        {"mean": ["Nobody"]},
        {"mean": ["Mean"]},
    ):
        with pytest.raises(Problems):
            read_table_file(changed(table, rows=rows | {"Mean": {"derived": derived}}))


def test_the_best_is_marked_only_where_the_paired_intervals_allow_it(table: Path) -> None:
    made = told(table, "--run", "--seeds", "0,1,2")
    assert [bool(row["ours"]["Kept (%)"] and row["ours"]["Kept (%)"]["best"]) for row in made["rows"]] == [False] * 4
    assert any(
        note.startswith("Kept (%): none is marked: Trained / Fine_1 is not clearly ahead of") for note in made["notes"]
    )
    assert not any(note.startswith("Words") for note in made["notes"]), "no length is better than another"
    # without the row that overlaps, and by the declared side reversed: no row is below all others
    rows = yaml.safe_load(TABLE)["rows"]
    given = {"plain": [1, 0, 0, 0, 0], "fine": [1, 1, 1, 1, 1]}
    for seed in range(3):
        for who, kept in given.items():
            lines = [
                {"id": str(n), "prompt": "", "responses": [{"text": "a b c" if good else "a, b"}]}
                for n, good in enumerate(kept)
            ]
            (table.parent / f"{who}-{seed}.jsonl").write_text(
                "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
            )
    del rows["Before"]
    made = told(changed(table, rows=rows), "--run", "--seeds", "0,1,2")
    assert [row["ours"]["Kept (%)"]["best"] for row in made["rows"][:2]] == [False, True]
    text = printed(table, "--seeds", "0,1,2")
    assert " *" in next(line for line in text.splitlines() if line.startswith("    Fine_1"))
    assert "* better than every other row that has run, by the paired intervals" in text
    worse = changed(table, columns={"Kept (%)": {"number": "evaluate/rule.kept", "better": "lower"}})
    made = told(worse, "--seeds", "0,1,2")
    assert [row["ours"]["Kept (%)"]["best"] for row in made["rows"][:2]] == [True, False]


def test_markdown_latex_and_csv(table: Path) -> None:
    words = [table, "--seeds", "0,1,2"]
    printed(*words, "--run")
    markdown = printed(*words, "--format", "markdown")
    head = next(line for line in markdown.splitlines() if line.startswith("| "))
    assert (
        head
        == "|  | Kept (%), ours | Kept (%), over seeds | Kept (%), paper | Words, ours | Words, over seeds | Words, paper | Taste, paper |"
    )
    assert markdown == printed(*words, "--markdown")
    latex = printed(*words, "--format", "latex")
    assert r"\caption{Answers without a comma \& more}" in latex
    assert r"Fine\_1 & " in latex
    assert r"75.5 $\uparrow$35.5" in latex
    assert latex.count(r"\begin{tabular}{lrrrrrrr}") == 1
    assert not set("%&#_^~").intersection(
        latex.replace(r"\%", "").replace(r"\&", "").replace(r"\_", "").replace(" & ", "")
    )
    rows = list(csv.DictReader(io.StringIO(printed(*words, "--format", "csv"))))
    assert [row["row"] for row in rows] == ["Before", "Plain", "Fine_1", "By people"]
    assert float(rows[1]["Kept (%)"]) == pytest.approx(share("plain"))
    assert rows[2]["Kept (%) paper"] == "75.5 ↑35.5"
    assert rows[3]["Kept (%)"] == ""


@pytest.mark.parametrize("kind", ["lines", "bars", "frontier"])
@pytest.mark.parametrize("ending", [".svg", ".pdf", ""])
def test_figures(kind: str, ending: str, table: Path) -> None:
    rows = yaml.safe_load(TABLE)["rows"]
    for place, row in enumerate(rows.values()):
        row["x"] = float(place)
    columns = {"Words": {"number": "evaluate/length.words"}, "Kept": {"number": "evaluate/rule.kept"}}
    if kind == "lines":
        del columns["Words"]
    changed(table, rows=rows, columns=columns, published=None, figure={"kind": kind, "x": "place", "y": "share"})
    target = table.parent / "figures" / f"drawn{ending}"
    with pytest.raises(UsageError, match="nothing of it has run"):
        raise fgrl("table", table, "--out", target).exception
    made = printed(table, "--run", "--out", target)
    endings = [ending] if ending else [".svg", ".png"]
    for own in endings:
        file = target.with_suffix(own)
        assert str(file) in made
        assert file.read_bytes()[:4] in (b"<?xm", b"%PDF", b"\x89PNG")
    first = [target.with_suffix(own).read_bytes() for own in endings]
    printed(table, "--out", target)
    assert [target.with_suffix(own).read_bytes() for own in endings] == first, "the same figure is the same file"
    if ending == ".svg":
        texts = "".join(ElementTree.parse(target).getroot().itertext())
        assert ("place" in texts) == (kind != "bars")
        assert "share" in texts


@pytest.mark.parametrize("said", [True, False], ids=["its command says it", "its command does not"])
def test_a_recipe_that_has_run_with_other_settings_says_which(
    said: bool,
    world: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["fgrl", "run", "plain.yaml", *(["seed=2"] if said else [])])
    assert fgrl("run", "plain.yaml", "seed=2").exit_code == 0
    differs = "seed=2" if said else f"dtype=float32 seed=2 stages.evaluate.given.policy.path={world / 'plain-2.jsonl'}"
    monkeypatch.setattr("sys.argv", ["fgrl", "table", "plain.yaml", "dtype=float32"])
    text = printed("plain.yaml", "dtype=float32")
    assert text.rstrip().splitlines()[-1] == f"plain has run with other settings: fgrl table plain.yaml {differs}"
    assert "rule.kept" in printed("plain.yaml", "seed=2")
    assert "other settings" not in printed("plain.yaml", "seed=2")


def test_values_that_only_a_person_has_wait(table: Path) -> None:
    changed(table, needs={"fine": ["vars.who"]})
    made = told(table)
    assert made["rows"][2]["waiting"] == "needs vars.who=..."
    assert made["rows"][1]["waiting"] == "not run"
    assert told(table, "vars.who=fine")["rows"][2]["waiting"] == "not run"


def test_a_small_version_and_a_sweep(table: Path) -> None:
    changed(
        table,
        small={"about": "Few", "columns": {"Words": {"number": "evaluate/length.words"}}, "rows": {"Before": None}},
    )
    made = told(table, "--small", "--seeds", "1")
    assert (made["about"], [row["row"] for row in made["rows"]]) == ("Few", ["Plain", "Fine_1", "By people"])
    assert list(made["rows"][0]["ours"]) == ["Words", "Kept (%)", "Taste"]
    assert made["ours"]["numbers"] == {"Words": "evaluate/length.words"}
    assert made["rows"][0]["published"]["Kept (%)"] == "40.00"
    sweep = yaml.safe_load(printed(table, "--sweep", "--seeds", "0,1"))
    assert sweep == {
        "program": "fgrl",
        "command": ["${program}", "run", "plain.yaml", "${args_no_hyphens}"],
        "method": "grid",
        "parameters": {"recipe": {"values": ["plain.yaml", "fine.yaml"]}, "seed": {"values": [0, 1]}},
    }


def test_a_sweep_of_a_table_passes_wandb_s_schema(table: Path) -> None:
    config = pytest.importorskip("sweeps.config", reason="needs sweeps: pip install sweeps")
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install jsonschema")
    schema = json.loads((Path(config.__file__).parent / "schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(printed(table, "--sweep")), schema)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"columns": {"Kept (%)": {"number": "rule.kept"}}}, "wants STAGE/METRIC.NUMBER"),
        ({"rows": {"Plain": {"recipe": "plane"}}}, '"plane" is not among `recipes`'),
        ({"rows": {"Plain": {"numbers": {"Kept": "evaluate/rule.kept"}}}}, 'no column "Kept"'),
        ({"rows": {"Plain": {"modle": "sft"}}}, 'did you mean "model"'),
        ({"published": "numbers.yml::1"}, "no such file"),
    ],
)
def test_mistakes(parts: dict[str, Any], message: str, table: Path) -> None:
    with pytest.raises(Problems) as raised:
        raise fgrl("table", changed(table, **parts)).exception
    assert message in raised.value.at_terminal()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stages.no_such.limit=1"], "no recipe of the table has this stage"),
        (["--out", "x.svg"], "it has no figure"),
        (["--small"], "it has no small version"),
    ],
)
def test_requests_that_cannot_be_met(words: list[str], message: str, table: Path) -> None:
    with pytest.raises(UsageError, match=message):
        raise fgrl("table", table, *words).exception


def test_options_of_table_files_are_refused_elsewhere(world: Path) -> None:  # noqa: F811
    result = fgrl("table", "plain.yaml", "--format", "latex")
    assert result.exit_code == 2
    assert "are for a table file" in result.output


def test_a_number_that_a_finished_evaluation_does_not_have_is_a_mistake(table: Path) -> None:
    changed(table, columns={"Kept": {"number": "evaluate/rule.kep"}}, published=None)
    with pytest.raises(UsageError, match=r'no evaluation has a number "evaluate/rule.kep".*did you mean "rule.kept"'):
        raise fgrl("table", table, "--run").exception


def test_annotations_are_counted_by_domain(table: Path) -> None:
    columns = {"Likes": {"count": "likes"}, "Words, thousands": {"count": "words", "scale": 0.001}}
    rows = {"Yelp": {"domain": "yelp"}, "Nobody": {"domain": "arxiv"}, "All": {"domain": "total"}}
    changed(table, columns=columns, rows=rows, published=None, recipes={})
    assert {row["waiting"] for row in told(table)["rows"]} == {"needs annotations=FILE"}
    sample = {"id": "1", "prompt": "", "meta": {"domain": "Yelp"}, "responses": [{"text": "one two three", "annotations": [
        {"by": "ada", "spans": [{"start": 0, "end": 7, "label": 1}, {"start": 8, "end": 13, "label": -1}]}
    ]}]}  # fmt: skip
    (table.parent / "marked.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    made = told(table, "annotations=marked.jsonl")
    means = [[own and own["mean"] for own in row["ours"].values()] for row in made["rows"]]
    assert means == [[1, 0.003], [None, None], [1, 0.003]]
    changed(table, annotations="marked.jsonl")
    assert told(table)["rows"] == made["rows"]


def test_small_files_name_their_own(table: Path) -> None:
    file = read_table_file(table)
    assert file.recipes_of(file.rows["Trained / Plain"]) == ["plain"]
    assert file.recipes_of(file.rows["Trained / By people"]) == []


CURVES = """about: "Losses while training"
recipes: {own: tiny.yaml}
seeds: [0, 1]
rows:
  fast: {set: [stages.reward_model.train.lr=1e-2]}
  slow: {set: [stages.reward_model.train.lr=1e-4]}
figure: {kind: curves, stages: [reward_model], metrics: [loss, accuracy]}
"""


def test_curves_of_trainings_with_bands_over_seeds(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recipe(tmp_path, tiny_model_dir)
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "curves.yaml"
    table.write_text(CURVES, encoding="utf-8")
    words = [
        table,
        "stages.calibrate=null",
        "stages.policy=null",
        "stages.evaluate=null",
        "stages.reward_model.train.max_steps=3",
    ]
    with pytest.raises(UsageError, match="nothing of it has run"):
        raise fgrl("table", *words, "--out", "x.svg").exception
    made = told(*words, "--run", "--out", "figures/losses.svg")
    assert [file.split("/")[-1] for file in made["files"]] == ["losses-loss.svg", "losses-accuracy.svg"]
    assert all(Path(file).is_file() for file in made["files"])
    fast, slow = made["curves"]["loss"]
    assert (fast["name"], fast["seeds"], len(fast["points"])) == ("fast", [0, 1], 3)
    assert all(point["low"] <= point["mean"] <= point["high"] for point in [*fast["points"], *slow["points"]])
    assert [point["mean"] for point in fast["points"]] != [point["mean"] for point in slow["points"]]
    text = printed(*words)
    assert "fast (2 seeds)" in text
    assert "loss" in text
    table.write_text(CURVES.replace("loss, accuracy", "losses"), encoding="utf-8")
    with pytest.raises(UsageError, match='does not have the metric "losses"; did you mean "loss"'):
        raise fgrl("table", *words).exception
