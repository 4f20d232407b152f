"""Does a first recipe of `fgrl init grpo` train sensible answers? Five small tasks, three seeds.

    python benchmarks/starters.py [--tasks brevity hedges] [--seeds 0 1 2] [--folder build/starters] [KEY=VALUE ...]

Each task is a reward of a few lines over 150 questions. For each, the script calls `fgrl init` and then `fgrl run` once for each seed, without
changing what `init` wrote (but for the overrides that are given), and prints a table: the reward on held-out prompts before and after with the
interval of the difference, nats per token of the answers under the start model, words, KL to the start model, distinct answers, seconds.
It also prints, for each task, some answers of the first seed before and after.

Finished runs are read again, so a killed script goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shared.tables import aligned

import fgrl

TOPICS = Path(__file__).resolve().parents[1] / "recipes" / "small" / "topics.txt"
MODEL = "smollm2-135m-instruct"
ROWS = 150
ASKED = (
    "Say something about {topic} in one or two short sentences.",
    "In one or two short sentences: why do people like {topic}?",
    "Answer in one short sentence: what are {topic} good for?",
)
GREETED = (
    "Greet somebody who likes {topic} in one or two short sentences.",
    "Start a conversation about {topic} in one or two short sentences.",
)
LISTED = (
    "Name three reasons why people like {topic}. Keep it short.",
    "List three things to know about {topic}. Keep it short.",
)
TASKS = {"brevity": ASKED, "hedges": ASKED, "question": GREETED, "bullets": LISTED, "keyword": ASKED}
"""The form of the questions of each task."""
REWARDS = r'''
import re

HEDGES = re.compile(
    r"\b(?:can|could|may|might|perhaps|possibly|probably|generally|usually|often|sometimes|likely|seems?|appears?|tends?|typically"
    r"|many|some|various|several)\b", re.IGNORECASE
)
ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)


def brevity(completions: list[str], **columns) -> list[float]:
    """About 15 words."""
    return [-abs(len(text.split()) - 15) / 15 for text in completions]


def hedges(completions: list[str], **columns) -> list[list[tuple[int, int, float]]]:
    """No hedging words."""
    return [[(found.start(), found.end(), -1.0) for found in HEDGES.finditer(text)] for text in completions]


def question(completions: list[str], **columns) -> list[float]:
    """A question at the end."""
    return [1.0 if text.strip().endswith("?") else 0.5 if "?" in text else 0.0 for text in completions]


def bullets(completions: list[str], **columns) -> list[float]:
    """A list of three."""
    return [min(3, len(ITEM.findall(text))) / 3 for text in completions]


def keyword(completions: list[str], keyword: list[str], **columns) -> list[float]:
    """The word of the row."""
    return [float(word.lower() in text.lower()) for text, word in zip(completions, keyword)]
'''
NUMBERS = {
    "reward": "token_reward.reward", "nats": "perplexity.nats_per_token", "words": "length.words", "KL": "kl.per_token",
}  # fmt: skip
"""What is shown, by the name of the number."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE of the recipes")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--folder", type=Path, default=Path("build") / "starters")
    parser.add_argument("--shown", type=int, default=20, help="answers of each task that are printed")
    options = parser.parse_intermixed_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = [["task", "seed", *NUMBERS, "difference of the reward", "distinct", "seconds"]]
    printed: list[str] = []
    for task in options.tasks:
        recipe = written(task, options)
        for seed in options.seeds:
            run, seconds = trained(recipe, seed, options)
            lines.append([task, str(seed), *row(run), f"{seconds:.0f}"])
            if seed == options.seeds[0]:
                printed += [f"\n{task}, seed {seed}", *examples(run, options.shown)]
            print(" ".join(lines[-1]), file=sys.stderr, flush=True)
    print("\n".join([*aligned(lines), *printed]))


def written(task: str, options: argparse.Namespace) -> Path:
    """The recipe that `fgrl init` writes for a task, in a folder of its own."""
    folder = options.folder / task
    folder.mkdir(exist_ok=True)
    topics = [line for line in TOPICS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    forms = TASKS[task]
    rows = [
        {"prompt": forms[n % len(forms)].format(topic=topic), "keyword": topic.split()[-1]}
        for n, topic in enumerate(topics[:ROWS])
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    words = ["--data", "rows.jsonl", "--model", options.model, "--reward", f"rewards.py:{task}", "--force"]
    fgrl_command(["init", "grpo", *words], folder)
    return folder / "recipe.yaml"


def trained(recipe: Path, seed: int, options: argparse.Namespace) -> tuple[Any, float]:
    """The finished run of a seed, and the seconds that it took; those of its stages where it was finished before."""
    began = time.monotonic()
    runs = recipe.parent / f"runs-{seed}"
    fgrl_command(
        ["run", "recipe.yaml", f"seed={seed}", "--runs", runs.name, "--quiet", *options.overrides], recipe.parent
    )
    run = fgrl.open_run(max((runs / "recipe").iterdir()))
    taken = [json.loads(file.read_text("utf-8"))["seconds"] for file in (runs / "stages").glob("*/stage.json")]
    return run, max(sum(taken), time.monotonic() - began)


def fgrl_command(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fgrl", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"fgrl {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def row(run: Any) -> list[str]:
    """The numbers of a run, `before -> after`, then the paired difference of the reward."""
    cells = []
    found = {(number["number"], number["model"]): number for number in run.numbers().to_dict("records")}
    for name in NUMBERS.values():
        before, after = found[name, "start"], found[name, "trained"]
        cells.append(f"{before['mean']:.2f} -> {after['mean']:.2f}")
    reward = found[NUMBERS["reward"], "trained"]
    difference = f"{reward['difference']:.2f} [{reward['difference_low']:.2f}, {reward['difference_high']:.2f}]"
    texts = {model: [answer.text for answer in run.answers(model=model)] for model in ("start", "trained")}
    distinct = " -> ".join(str(len(set(texts[model]))) for model in texts)
    return [*cells, difference, distinct]


def examples(run: Any, count: int) -> list[str]:
    """Some pairs of answers, drawn by a fixed seed."""
    before, after = (list(run.answers(model=model)) for model in ("start", "trained"))
    places = sorted(random.Random(0).sample(range(len(before)), min(count, len(before))))
    shown = []
    for place in places:
        shown.append(f"- {before[place].answer.sample.prompt}")
        shown += [
            f"  {when} {' '.join(own[place].text.split())}" for when, own in (("before:", before), ("after: ", after))
        ]
    return shown


if __name__ == "__main__":
    main()
