"""Numbers derived from the observations of a file are those that were measured, to the last bit."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl import registry
from fgrl.base.console import Console
from fgrl.base.errors import DataError
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Metric
from fgrl.measuring import comparison, elo, human_verdicts, observations
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Compared, Comparison
from fgrl.measuring.held_out import measure
from fgrl.measuring.number_names import METRICS
from fgrl.measuring.observations import FILE, Observations, Observed, refreshed
from fgrl.measuring.pairwise import Game, PairOutcome
from fgrl.measuring.statistics import Measured, estimate, weighted_mean
from fgrl.measuring.symptoms import SYMPTOMS
from fgrl.types import Criterion

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"
WORDS = ["yes", "no", "lamp", "door,", "night", "1", "2", "3"]
CODE = {"text": "Passes.", "check": {"name": "code:tests", "format": "asserts", "tests": "assert f() == 1"}}
NO_COMMA = "punctuation:no_comma"
know_components()
NAMES = [n for n in registry.names("metric") if registry.get("metric", n).__module__.startswith("fgrl.")]


def judge(folder: Path, *answers: str) -> dict[str, Any]:
    """A client that answers by the words of the question."""
    rows: list[dict[str, Any]] = [
        {"contains": word, "answer": answer} for word, answer in zip(WORDS, answers, strict=False)
    ]
    rows.append({"any": True, "error": "no answer"})
    (folder / "judge.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "replay", "answers": str(folder / "judge.jsonl")}


def settings_of(name: str, folder: Path, model: Path) -> dict[str, Any]:
    """Settings that make a metric look at as much as it can."""
    pair = {"prompt": str(PROMPTS / "judge_pairwise.txt")}
    if name == "function":
        (folder / "mine.py").write_text(
            "def words(completions, **k):\n    return [len(c.split()) for c in completions]\n"
        )
    return {
        "bertscore": lambda: {"encoder": str(model), "layer": 1},
        "bleu": lambda: {"aggregate": "corpus"},
        "choice": lambda: {"answers": "several"},
        "elo": lambda: {"client": judge(folder, "[[1]]", "[[tie]]", "[[2]]", "[[1]]"), **pair},
        "elo_by_rule": lambda: {"rule": NO_COMMA},
        "function": lambda: {"path": f"{folder}/mine.py:words"},
        "pass_at_k": lambda: {"k": [1, 2]},
        "perplexity": lambda: {"scorer": str(model)},
        "rating": lambda: {
            "client": judge(folder, "[[7]]", "[[3]]", "[[9]]"), "prompt": str(PROMPTS / "judge_rating.txt"),
        },
        "rubric": lambda: {"by": "kind"},
        "rule": lambda: {"rule": NO_COMMA},
        "token_auc": lambda: {"rule": NO_COMMA},
        "win_rate": lambda: {"client": judge(folder, "[[1]]", "[[tie]]", "[[2]]", "[[1]]"), **pair},
    }.get(name, dict)()  # fmt: skip


def answers_of(metric: str) -> dict[str, list[Answer]]:
    """Answers of three models to eleven prompts, with everything that a metric may read."""
    rng = random.Random(metric)

    def answer(place: int) -> Answer:
        id, said = str(place % 11), [rng.choice(WORDS) for _ in range(rng.randrange(1, 6))]
        text, offsets = " ".join(said), []
        if metric == "pass_at_k":
            text = f"def f():\n    return {rng.randrange(2)}"
        for word in said:
            start = offsets[-1][1] + 1 if offsets else 0
            offsets.append((start, start + len(word)))
        tokens = [rng.choice([None, rng.gauss(0, 1)]) for _ in said]
        return answer_of(
            id, f"Say {id}.", text, said, offsets if metric != "pass_at_k" else [(0, 0)] * len(said), True,
            references=["no" if metric == "yes_no" else "[1, 2]" if metric == "choice" else "a lamp, yes"],
            rubric=[Criterion(**(CODE if metric == "pass_at_k" else {"text": "No commas.", "check": {"name": NO_COMMA}}))],
            logp=rng.gauss(-9, 1), ref_logp=rng.choice([None, rng.gauss(-9, 1)]), kl=rng.gauss(1, 1),
            rewards={"r": rng.choice([None, rng.gauss(0, 1)])}, token_rewards={"r": tokens},
            segments={"r": [place // 2 for place in range(len(said))]},
        )  # fmt: skip

    return {model: [answer(place) for place in range(22)] for model in ("base", "policy", "rival")}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_metric_observed_gives_its_numbers_again(name: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    metric = registry.build(Metric, {"name": name, **settings_of(name, tmp_path, tiny_model_dir), "resamples": 100})
    answers = answers_of(name)
    with scratch_run("evaluate", cache=tmp_path, seed=0, accelerator="cpu", products={}, console=Console()) as run:
        metric.setup(run)
        measured, observed = measure([metric], answers, "base")
        again = metric.measure(answers, baseline="base")
    assert isinstance(metric, Compared)
    assert measured == again
    assert any(number["low"] is not None for number in measured[metric.called]["policy"].values())
    comparison.write(tmp_path, "base", measured, {}, observed)
    found = observations.read(tmp_path)
    assert found is not None
    assert found.metrics[metric.called].derived() == measured[metric.called]
    assert found.answers == dict.fromkeys(answers, 22)
    assert set(found.prompts) == {str(place) for place in range(11)}
    report = json.loads((tmp_path / METRICS).read_text())
    assert refreshed(report, tmp_path) is report


def kinds_of_numbers() -> dict[str, Measured]:
    """Numbers of stages that measure in their own way, and those that are missing."""
    rng = random.Random(1)
    outcomes = {"first": 1.0, "tie": 0.5, "second": 0.0}
    games = [
        Game.of(str(place % 9), *rng.sample("abc", 2), PairOutcome(verdict, outcomes[verdict]))
        for place in range(60)
        for verdict in [rng.choice(list(outcomes))]
    ]
    ratings = elo.Ratings(elo.Contest.of(games), elo.EloSettings())
    won = [Game.of(str(place), "a", "b", PairOutcome("first", 1.0)) for place in range(4)]
    undefeated = elo.Ratings(elo.Contest.of(won), elo.EloSettings())
    votes = [human_verdicts.coincidences(rng.randrange(3), 2) for _ in range(20)]
    ids = [str(place % 7) for place in range(20)]
    return {
        "rating": ratings.rating("a"),
        "to best": ratings.to_best("c"),
        "undefeated": undefeated.rating("a"),
        "alpha": observations_of_sums(votes, ids),
        "nothing": weighted_mean([None, None], ["a", "b"]),
        "no rows": human_verdicts.of_sums([None, None], ["a", "b"]),
    }


def observations_of_sums(rows: list[tuple[float, float, float]], ids: list[str]) -> Measured:
    return human_verdicts.of_sums(rows, ids, "krippendorff_alpha", {})


def test_every_kind_of_number_is_read_as_it_was_written(tmp_path: Path) -> None:
    numbers = kinds_of_numbers()
    observations.write(tmp_path, Observations({"m": Observed({"a": numbers}, {"resamples": 100}, depends=["x"])}))
    found = observations.read(tmp_path)
    assert found is not None
    assert found.metrics["m"].depends == ["x"]
    for name, number in numbers.items():
        again = found.metrics["m"].numbers["a"][name]
        assert estimate(again, resamples=100) == estimate(number, resamples=100), name
        assert again.clusters == number.clusters


def test_a_changed_value_changes_the_numbers(tmp_path: Path) -> None:
    metrics = {"m": Observed({"a": {"n": weighted_mean([1.0, 0.0], ["p", "q"])}}, {"resamples": 100})}
    derived = {name: own.derived() for name, own in metrics.items()} | {"finished": {"a": {"n": {"mean": 3.0}}}}
    comparison.write(tmp_path, None, derived, {}, Observations(metrics))
    file = tmp_path / FILE
    text = file.read_text()
    assert '"rows": [[1.0, 1.0], [0.0, 1.0]]' in text
    file.write_text(text.replace('"rows": [[1.0, 1.0]', '"rows": [[5.0, 1.0]'))
    report = json.loads((tmp_path / METRICS).read_text())
    again = refreshed(report, tmp_path)["metrics"]
    assert (report["metrics"]["m"]["a"]["n"]["mean"], again["m"]["a"]["n"]["mean"]) == (0.5, 2.5)
    assert again["finished"] == derived["finished"]
    file.write_text(text.replace("weighted_mean", "unheard"))
    with pytest.raises(DataError, match=r"observations\.jsonl is damaged.*unheard"):
        refreshed(report, tmp_path)


def test_a_metric_with_finished_numbers_observes_nothing(tmp_path: Path) -> None:
    class Finished(Metric):
        def measure(self, answers: Any, *, baseline: str | None = None) -> dict[str, Any]:
            return {"own": {model: {"n": {"mean": 1.0}} for model in answers}}

    class Changed(Comparison):
        title: str = "changed"

        def numbers(self, answers: Any) -> dict[str, Measured]:
            return {"n": weighted_mean([1.0], ["p"])}

        def measure(self, answers: Any, *, baseline: str | None = None) -> dict[str, Any]:
            return {"changed": {model: {"n": {"mean": 2.0}} for model in answers}}

    measured, observed = measure([Finished(), Changed()], {"a": [answer_of("p", "?", "x")]}, "a")
    assert set(measured) == {"own", "changed"}
    assert set(observed.metrics) == {SYMPTOMS}, "but always what reward hacking shows in"
    comparison.write(tmp_path, "a", measured, {}, observed)
    assert json.loads((tmp_path / METRICS).read_text())["metrics"] == measured
