"""Folders as `fgrl run` leaves them, with invented numbers."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from pathlib import Path
from typing import Any

from fgrl.measuring import observations
from fgrl.measuring.answer import read_answers
from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.symptoms import SYMPTOMS
from fgrl.measuring.symptoms import symptoms as symptoms_of

ABOUT = "Segment PPO on SmolLM2: one or two sentences about a topic, without a comma, 8 to 40 words."
TOPICS = ("lighthouses", "sourdough bread", "the northern lights", "chess openings", "beekeeping", "river deltas")
BEFORE = (
    "{T} are fascinating, and they have a long history that goes back many centuries, with people all over the world.",
    "There are many kinds of {t}, each with its own history, its own tools and its own devoted followers.",
    "{T}, in short, reward patience.\nThey ask for time, care, and a steady hand.",
)
AFTER = (
    "Many people love {t} because they connect us to the past and to each other in quiet ways.",
    "The story of {t} begins long ago and still shapes how people live and work today.",
    "A good way to learn about {t} is to watch somebody who has done it for years and to ask questions.",
)
RECIPE = """about: "{about}"
stages:
  samples: {{name: sample}}
  pairs: {{name: pair}}
  reward_model: {{name: finetune}}
  calibrate: {{name: calibrate}}
  policy: {{name: rl, algorithm: {{name: ppo, kl_coef: 0.01}}}}
  evaluate: {{name: evaluate, models: {{policy: "${{out:policy}}"}}}}
"""


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_answers(out: Path, lines: list[dict[str, Any]]) -> None:
    """The answers of an evaluation, and what it observes of any."""
    write_lines(out / "answers.jsonl", lines)
    answers = read_answers(out / "answers.jsonl")
    symptoms = Observed({model: symptoms_of(own) for model, own in answers.items()}, {})
    observations.write(out, Observations.of({SYMPTOMS: symptoms}, answers))


def write_stage(place: Path, **fields: Any) -> None:
    """The record of a finished stage in its folder, `<name>-<key>`."""
    name, _, key = place.name.rpartition("-")
    files = {
        file.relative_to(place / "out").as_posix(): {
            "bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()
        }
        for file in (place / "out").rglob("*") if file.is_file()
    }  # fmt: skip
    record = {
        "name": name, "key": key, "component": "", "makes": "", "recipe": "fake", "made": "2026-05-01T09:30:00Z", "seconds": 1.0,
        "upstream": {}, "summary": {}, "identity": {}, "versions": {}, "files": files,
    }  # fmt: skip
    write_json(place / "stage.json", record | fields)


def fake_run(root: Path, *, prompts: int = 30, points: int = 90, steps: int = 400) -> Path:
    """A finished run below `root/runs`. Returns the invocation's folder."""
    draw = random.Random(7)
    folder = root / "runs" / "small-segment_ppo" / "20260501T093000Z-3fa9c1d2"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE.format(about=ABOUT), encoding="utf-8")
    logs = {
        "samples": ("sample", []),
        "pairs": ("pair", []),
        "reward_model": ("finetune", _reward_model(draw, steps)),
        "calibrate": ("calibrate", []),
        "policy": ("rl", _policy(draw)),
        "evaluate": ("evaluate", []),
    }
    summary = {
        "samples": {"samples": 2560, "prompts": 320},
        "pairs": {"pairs": 611, "dropped": 29},
        "reward_model": {"steps": steps, "accuracy": 0.91},
        "calibrate": {"segments": 9120, "regression": "huber"},
        "policy": {"iterations": 14, "last response reward": 1.31, "last kl": 3.4},
        "evaluate": {"prompts": prompts, "models": 2},
    }
    stages = {}
    for index, (name, (kind, log)) in enumerate(logs.items()):
        key = f"{index:x}f3a8c2b1d0e9f{index:x}7"
        place = root / "runs" / "stages" / f"{name}-{key}"
        (place / "out").mkdir(parents=True)
        write_stage(place, component=kind)
        if log:
            write_lines(place / "log.jsonl", log)
        stages[name] = {
            "key": key, "kind": kind, "dir": f"../../stages/{name}-{key}", "cached": index < 2,
            "seconds": 0.1 if index < 2 else 31.5 * index, "summary": summary[name],
        }  # fmt: skip
    out = {name: folder / entry["dir"] / "out" for name, entry in stages.items()}
    write_json(out["calibrate"] / "stats.json", stats(draw, points))
    write_json(out["evaluate"] / "metrics.json", metrics())
    write_answers(out["evaluate"], answers(draw, prompts))
    write_json(
        folder / "summary.json",
        {
            "recipe": "small-segment_ppo", "about": ABOUT, "command": ["fgrl", "run", "recipes/small/segment_ppo.yaml"],
            "started": "2026-05-01T09:30:00Z", "finished": "2026-05-01T09:38:12Z", "seconds": 492.1,
            "exit": 0, "stages": stages,
        },
    )  # fmt: skip
    write_json(
        folder / "environment.json",
        {"python": "3.11.2", "platform": "Linux x86_64", "packages": {"torch": "2.6.0", "lightning": "2.6.4"},
         "threads": 2, "git": None, "devices": ["cpu"]},
    )  # fmt: skip
    write_json(
        folder / "origins.json",
        {"stages.policy.algorithm.kl_coef": "command line", "about": "recipes/small/segment_ppo.yaml:1:1"},
    )
    return folder


def ruined_run(root: Path, prompts: int = 32) -> Path:
    """A finished run of a first recipe whose reward rose while its answers went from 39 words to 8, and from sense to
    nonsense: evaluated by the reward, lengths and the likelihood under the model before training. Returns its folder.
    """
    folder = root / "runs" / "grpo" / "20260501T093000Z-3fa9c1d2"
    folder.mkdir(parents=True)
    reward = "{name: function, path: 'rewards.py:spans'}"
    (folder / "recipe.yaml").write_text(
        f"""vars: {{base: small}}
stages:
  policy: {{name: rl, reward: {reward}, model: {{base: small, lora: {{r: 16}}}}, rollout: {{batch_size: 32, per_prompt: 8}}}}
  evaluate: {{name: evaluate, models: {{start: {{base: small}}, trained: "${{out:policy}}"}}, baseline: start,
    rewards: {{reward: {reward}}}}}
""",
        encoding="utf-8",
    )
    places = {
        name: root / "runs" / "stages" / f"{name}-{key * 16}" for name, key in (("policy", "a"), ("evaluate", "b"))
    }
    log = [{"step": step, "reward": -1.4 + 0.06 * step, "reward_std": 0.3, "kl": 0.45 * step, "tokens": 52.0 - 2 * step}
           for step in range(20)]  # fmt: skip
    write_lines(places["policy"] / "log.jsonl", log)
    pair = {"start": {"reward": estimate(-1.38, 0.2)}, "trained": {"reward": estimate(-0.21, 0.2)},
            "differences": {"trained": {"reward": estimate(1.17, 0.45)}}}  # fmt: skip
    meaning = {"words": "mean reward of held-out answers ({number})", "better": "higher"}
    report = {"baseline": "start", "metrics": {"token_reward": pair},
              "meanings": {"token_reward": {"purpose": "reward", "numbers": {"*": meaning}}}}  # fmt: skip
    write_json(places["evaluate"] / "out" / "metrics.json", report)
    sense = "No, cabbage does not help with a headache, but number {n} on this list might." + 24 * " Rest"
    nonsense = "Zinehakl: A wacky way to give {n} answers"
    write_answers(places["evaluate"] / "out", [
        {"model": model, "sample": {"id": str(n), "prompt": f"Does remedy {n} help with a headache?"},
         "response": {"text": text.format(n=n), "finished": True}, "tokens": ["x"] * tokens, "offsets": [[0, 0]] * tokens,
         "ref_logp": -nats * tokens, "kl": kl}
        for model, text, tokens, nats, kl in (("start", sense, 52, 1.4, 0.0), ("trained", nonsense, 12, 4.9, 8.9))
        for n in range(prompts)
    ])  # fmt: skip
    stages = {}
    for (name, place), kind in zip(places.items(), ("rl", "evaluate"), strict=True):
        (place / "out").mkdir(exist_ok=True)
        write_stage(place, component=kind)
        stages[name] = {
            "key": place.name.rpartition("-")[2],
            "kind": kind,
            "dir": f"../../stages/{place.name}",
            "seconds": 9.0,
        }
    write_json(folder / "summary.json", {
        "recipe": "grpo", "command": ["fgrl", "run", "grpo.yaml"], "started": "2026-05-01T09:30:00Z",
        "finished": "2026-05-01T09:38:12Z", "seconds": 492.1, "exit": 0, "stages": stages,
    })  # fmt: skip
    return folder


def _reward_model(draw: random.Random, steps: int) -> list[dict[str, float]]:
    lines = []
    for step in range(steps):
        done = step / steps
        loss = 0.2 + 0.5 * math.exp(-5 * done) + draw.gauss(0, 0.06)
        lines.append(
            {"step": step, "time": 1.7e9 + step, "loss": loss, "accuracy": min(1.0, 0.5 + 0.45 * done**0.4
             + draw.gauss(0, 0.05)), "margin": 2 * done + draw.gauss(0, 0.3), "lr": 3e-4 * (1 - done)}
        )  # fmt: skip
    return lines


def _policy(draw: random.Random) -> list[dict[str, float]]:
    lines = []
    for step in range(14):
        row: dict[str, float] = {"step": step, "time": 1.7e9 + step, "reward": -0.4 + 0.13 * step + draw.gauss(0, 0.08)}
        row |= {"kl": 0.28 * step + abs(draw.gauss(0, 0.2)), "tokens": 30 - 0.4 * step + draw.gauss(0, 1)}
        row |= {"policy_loss": draw.gauss(-0.01, 0.004), "value_loss": 0.4 * 0.85**step, "finished": 0.95}
        row |= {"explained_variance": 1 - 0.9**step, "clip_fraction": 0.08, "empty": 0.0, "distinct": 0.9}
        row |= {f"seconds/{phase}": draw.uniform(1, 10) for phase in ("generate", "score", "train")}
        lines.append(row)
    return lines


def stats(draw: random.Random, points: int) -> dict[str, Any]:
    bins = []
    for place in range(1, points + 1):
        p = round(place / points, 3)
        count = max(1, int(400 * abs(draw.gauss(0, 0.4))))
        mean = 0.77 * math.log(p) + 0.47 + draw.gauss(0, 0.15)
        std = max(0.05, 0.26 * math.log(p) + 1.6 + draw.gauss(0, 0.1))
        bins.append({"p": p, "mean": mean, "std": std, "count": count, "used": count > 5})
    return {
        "normalizer": "location", "regression": "huber", "w_mean": 0.77, "b_mean": 0.47, "w_std": 0.26, "b_std": 1.6,
        "min_std": 0.5, "floored": 0.01, "rewards": 9120, "responses": 1222, "points": bins,
    }  # fmt: skip


def estimate(mean: float | None, half: float = 0.05, n: int = 64, note: str | None = None) -> dict[str, Any]:
    ends = {"low": None, "high": None} if mean is None else {"low": mean - half, "high": mean + half}
    return {"mean": mean, **ends, "n": n, "groups": n, "positives": None, "note": note}


def metrics() -> dict[str, Any]:
    def pair(name: str, sft: float, policy: float, half: float, change: float) -> dict[str, Any]:
        return {
            "sft": {name: estimate(sft, half)},
            "policy": {name: estimate(policy, half)},
            "differences": {"policy": {name: estimate(policy - sft, change)}},
        }

    rule = pair("kept", 0.156, 0.578, 0.1, 0.14)
    for model, value in (("sft", 0.203), ("policy", 0.64)):
        rule[model]["no comma"] = estimate(value, 0.1)
    rule["differences"]["policy"]["no comma"] = estimate(0.437, 0.13)
    auc = {"policy": {"segment": estimate(0.83, 0.04, 1400), "bandit": estimate(None, 0, 0, "no positives")},
           "sft": {"segment": estimate(0.81, 0.03, 2100), "bandit": estimate(0.55, 0.05, 2100)}}  # fmt: skip
    return {
        "metrics": {
            "rule": rule,
            "length": pair("tokens", 31.2, 24.9, 2.1, 2.4),
            "kl": pair("per answer", 0.0, 3.41, 0.4, 0.4),
            "reference_likelihood": pair("nats per token", -1.91, -1.87, 0.09, 0.08),
            "token_auc": auc,
        },
        "baseline": "sft",
        "meanings": {
            "rule": {
                "purpose": "goal",
                "numbers": {"*": {"words": "share that satisfies the rule", "better": "higher"}},
            }
        },
    }


def answers(draw: random.Random, prompts: int) -> list[dict[str, Any]]:
    lines = []
    for model, texts in (("policy", AFTER), ("sft", BEFORE)):
        for index in range(prompts):
            topic = TOPICS[index % len(TOPICS)]
            text = texts[index % len(texts)].format(t=topic, T=topic.capitalize())
            lines.append(answer(draw, model, f"topic-{index}", f"Write a sentence or two about {topic}.", text))
    return lines


def answer(draw: random.Random, model: str, id: str, prompt: str, text: str) -> dict[str, Any]:
    """A line of `answers.jsonl`: about a token a word, an entropy-like and a fixed segmentation."""
    tokens = re.findall(r"\s?\S{1,7}|\s", text)
    offsets, end = [], 0
    for token in tokens:
        offsets.append([end, end + len(token)])
        end += len(token)
    segment: list[int] = []
    for place in range(len(tokens)):
        segment.append((segment[-1] if segment else 0) + (place > 0 and draw.random() < 0.4))
    worth = [draw.gauss(0.5, 0.6) for _ in range(len(tokens) + 1)]
    for place, token in enumerate(tokens):
        if "," in token:
            worth[segment[place]] = -1.6
    sizes = [segment.count(index) for index in range(len(tokens) + 1)]
    split = [worth[index] / sizes[index] for index in segment]
    fixed = [place // 5 for place in range(len(tokens))]
    return {
        "model": model, "sample": {"id": id, "prompt": prompt}, "response": {"text": text, "finished": True},
        "tokens": [*tokens, "<|im_end|>"], "offsets": [*offsets, [end, end]],
        "logp": -1.4 * len(tokens), "ref_logp": -1.6 * len(tokens), "kl": 0.2 * len(tokens) if model != "sft" else 0.0,
        "token_rewards": {"segment": [*split, None], "ngram": [*(draw.gauss(3, 0.5) for _ in tokens), None]},
        "segments": {"segment": [*segment, -1], "ngram": [*fixed, -1]},
    }  # fmt: skip
