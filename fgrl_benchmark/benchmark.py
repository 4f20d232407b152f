"""Runs of the credit benchmark, in the phases of plan.yaml. Each finished run is one line of results/PHASE.jsonl. A run
that has a line is not repeated, on any machine.

    python -m fgrl_benchmark.benchmark run [--phase test] [--methods oracle,even] [--tasks code] [--seeds 1000-1004] [--minutes 20]
    python -m fgrl_benchmark.benchmark budget
    python -m fgrl_benchmark.tables

All runs share this process and start from one model, which start.yaml trains (once, seven minutes of one core).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

import fgrl
from fgrl.base.errors import FgrlError
from fgrl_benchmark.credit_quality import quality_of
from fgrl_benchmark.credit_tasks import KINDS, task
from fgrl_benchmark.turn_games import GAMES
from fgrl_benchmark.turn_quality import quality_of_turns

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NUMBERS = {
    "quality.right": "right", "quality.solved": "solved", "kl.sum": "kl", "environment.info success": "right",
    "environment.return": "return", "environment.turns": "turns",
}  # fmt: skip
"""Numbers that a line has of an evaluation. For conversations, `right` is the share that succeeded."""
METHODS = ("methods.yaml", "imitation_methods.yaml", "label_methods.yaml", "turn_methods.yaml")
PARTS, FILLERS = 8, 2
EACH_TASK = "each_task"
"""Value of `tuned` in plan.yaml that selects separate settings for each task."""
ANSWERS = 64
"""Number of answers that an iteration draws."""
SECONDS = {"task.yaml": 15.0, "smollm2.yaml": 240.0, "turns.yaml": 15.0}
"""Seconds of one core for a run, if no line has its cost."""
START_TAKES = {
    "start.yaml": "seven to nine minutes of one core",
    "start_smollm2.yaml": "minutes on a GPU, hours without one",
    "start_turns.yaml": "about one minute of one core",
}
"""Training times of the models that other trainings start from."""


@dataclass(frozen=True)
class Point:
    """A run: a method with settings, a task and a seed."""

    method: str
    task: str
    seed: int
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Name of the run in its phase."""
        return json.dumps([self.method, self.task, self.seed, self.settings], sort_keys=True)


class Numbers(yaml.SafeLoader):
    """Loader with YAML 1.2's numbers, in which 2e-4 is a number."""


Numbers.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)$"), list("-+.0123456789")
)


def read(name: str) -> Any:
    """Return the contents of a YAML file beside this one."""
    return yaml.load((HERE / name).read_text(encoding="utf-8"), Loader=Numbers)


def seeds_of(text: str) -> list[int]:
    """Return the seeds of `0,1,2`, `100-103`, or both."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise SystemExit(f"{part!r} is no seed, and no range of seeds such as 1000-1004")
        found += range(int(first), int(last or first) + 1)
    return found


def lines(phase: str) -> Iterator[dict[str, Any]]:
    """Yield the finished runs of a phase."""
    file = RESULTS / f"{phase}.jsonl"
    if file.is_file():
        yield from map(json.loads, file.open(encoding="utf-8"))


def points(phase: str, named: Sequence[str] = ()) -> list[Point]:
    """Return the runs of a phase, seed by seed, so that a part of them has all methods.

    named: further methods to run, which the phase does not list.
    """
    plan = read("plan.yaml")[phase]
    methods = methods_of(plan)
    own = [name for name, method in methods.items() if "as" not in method]
    names = (
        own
        if plan["methods"] == "all"
        else list(dict.fromkeys([*plan["methods"], *(name for name in named if name in methods)]))
    )
    settings = {name: settings_on(plan, name) for name in plan["tasks"]}
    found = []
    for seed in seeds_of(str(plan["seeds"])):
        for name, chosen in settings.items():
            for method in names:
                if name not in methods[method].get("tasks", plan["tasks"]):
                    continue
                if "rates" in plan:
                    tried = itself(methods, method) if plan.get("itself") else methods[method]
                    each = trials(tried, plan["rates"], knobs=plan.get("knobs", True))
                elif "each" in plan:
                    each = [{**chosen.get(method, {}), **settings_of(worse)} for worse in read(plan["each"])]
                elif plan.get("tuned") == EACH_TASK:
                    each = [chosen[method]] if method in chosen else []
                else:
                    each = [chosen.get(method, chosen.get(methods[method].get("as"), {}))]
                found += [Point(method, name, seed, settings) for settings in each]
    return found


def settings_of(worse: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides for credit with these mistakes."""
    return {
        f"stages.policy.{'algorithm' if key == 'baseline' else 'reward'}.{key}": value for key, value in worse.items()
    }


def mistakes_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mistakes among the settings of a run, without those that were tuned."""
    return {key.rsplit(".", 1)[1]: value for key, value in settings.items() if key.startswith("stages.policy.")}


def methods_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return all methods that a phase can choose from, including its own."""
    return {**read(plan.get("methods_of", METHODS[0])), **plan.get("own", {})}


def trials(method: Mapping[str, Any], rates: Sequence[float], *, knobs: bool = True) -> list[dict[str, Any]]:
    """Return the settings to try. Each method has the same number; a method that has the settings of another (`as`) has
    none.
    """
    if "as" in method:
        return []
    if not knobs:
        return [{"vars.lr": rate} for rate in method.get("rates", rates)]
    ((knob, values),) = method.get("knob", {"vars.kl": [0.02, 0.005]}).items()
    return [{"vars.lr": rate, knob: value} for rate in method.get("rates", rates) for value in values]


def itself(methods: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a method without `as`, so that it is tuned itself, with the rates and the knob of the method whose
    settings it otherwise has.
    """
    other = methods.get(methods[name].get("as"), {})
    own = {key: other[key] for key in ("rates", "knob") if key in other} | methods[name]
    return {key: value for key, value in own.items() if key != "as"}


def settings_on(plan: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the settings of a phase on a task, by method."""
    if plan.get("tuned") == EACH_TASK:
        shared = tuned()
        return {method: settings for method, settings in tuned(name).items() if settings != shared[method]}
    return tuned(name if plan.get("of_task") else "", tuning(plan)) if plan.get("tuned") else {}


def tuning(plan: Mapping[str, Any]) -> str:
    """Return the phase that chose the settings of a phase."""
    return plan["tuned"] if plan["tuned"] in read("plan.yaml") else "tune"


def tuned(name: str = "", phase: str = "tune") -> dict[str, dict[str, Any]]:
    """Return the settings with the most right words in a phase of tuning, by method, without methods that have no line.
    name: the task whose lines count; without it, all.
    """
    return best(line for line in lines(phase) if not name or line["task"] == name)


def best(tried: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings with the most right words in these lines, by method. Only settings with the highest number of
    lines count.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in tried:
        found[line["method"]][json.dumps(line["settings"])].append(line["policy.right"])
    most = {method: max(len(values) for values in settings.values()) for method, settings in found.items()}
    return {
        method: json.loads(max(
            (each for each in settings if len(settings[each]) == most[method]), key=lambda each: statistics.mean(settings[each])
        ))
        for method, settings in found.items()
    }  # fmt: skip


def file_of(plan: Mapping[str, Any]) -> str:
    """Return the name of the file of a phase's runs."""
    return str(plan.get("recipe", "task.yaml"))


def recipe_of(point: Point, plan: Mapping[str, Any]) -> str:
    """Return the recipe of a run: a file, or a row of it."""
    method = methods_of(plan)[point.method]
    row = f"::{method['row']}" if "row" in method else ""
    return str(method.get("recipe", f"{HERE / file_of(plan)}{row}"))


def overrides(point: Point, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run changes in its recipe, except for the model that it starts from."""
    method = methods_of(plan)[point.method]
    given = {"vars.split": plan["split"], "vars.task": point.task}
    if point.task in KINDS:
        given |= {"vars.words": task(point.task, PARTS, FILLERS).length}
    return given | method.get("overrides", {}) | method.get("by_task", {}).get(point.task, {}) | dict(point.settings)


def to_stderr(text: str) -> None:
    """Print a line that is not a result."""
    print(text, file=sys.stderr, flush=True)


@cache
def start(recipe: str, name: str, runs: str, say: Callable[[str], None] = to_stderr) -> str:
    """Return the folder of the model that trainings on a task start from: the product of the last stage, which is
    trained first if it is missing.

    A row of the recipe, such as `few`, has the best settings of its method, `sft_few`, on the task.
    """
    source, _, row = recipe.partition("::")
    given = {"vars.task": name, **tuned(name, "imitate").get(f"sft_{row}", {})} if row else {}
    cached = bool(fgrl.plan(f"{HERE / recipe}", given, runs=runs)["cached"].all())
    if not cached:
        say(f"the model that every method starts from is trained: once, {START_TAKES[source]}; it is kept in {runs}")
    finished = fgrl.run(f"{HERE / recipe}", given, runs=runs, page=False, progress=not cached)
    return str(list(finished.stages.values())[-1].product.resolve())


def run(options: argparse.Namespace) -> None:
    """Run all points that have no line yet."""
    until = time.monotonic() + 60 * options.minutes
    check(options)
    named = options.methods.split(",") if options.methods and options.phase else []
    phases = phases_of(options)

    def asked(phase: str) -> list[Point]:
        return [point for point in points(phase, named) if wanted(point, options)]

    matching = {phase: asked(phase) for phase in phases}
    if not any(matching.values()):
        raise SystemExit("no run of plan.yaml matches: a phase has its own methods, tasks and seeds")
    missing = {phase: without_line(phase, every) for phase, every in matching.items()}
    if not any(missing.values()):
        print(f"all {sum(map(len, matching.values()))} runs have a line", file=sys.stderr)
    for phase, every in missing.items():
        validate(every, read("plan.yaml")[phase])
    for phase in phases:
        plan = read("plan.yaml")[phase]
        every = without_line(phase, asked(phase))  # again: settings follow from an earlier phase
        if missing_tuning := untuned(plan, every):
            raise SystemExit(
                f"{', '.join(missing_tuning)}: no line of phase {tuning(plan)}, which chooses the settings of phase {phase}; run it first: "
                f"--phase {tuning(plan)},{phase} --methods {','.join(missing_tuning)}"
            )
        for point in every:
            if time.monotonic() > until:
                return
            line = result(point, plan, options.runs)
            RESULTS.mkdir(exist_ok=True)
            with (RESULTS / f"{phase}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps({key: value for key, value in line.items() if key != "key"}), flush=True)


def phases_of(options: argparse.Namespace) -> list[str]:
    """Return the named phases, else all phases except those that run only if they are named."""
    if options.phase:
        return str(options.phase).split(",")
    return [phase for phase, plan in read("plan.yaml").items() if not plan.get("only_named")]


def without_line(phase: str, every: Sequence[Point]) -> list[Point]:
    """Return the runs of a phase that have not run."""
    done = {line["key"] for line in lines(phase)}
    return [point for point in every if point.key not in done]


def check(options: argparse.Namespace) -> None:
    """Raise SystemExit if an option names something unknown."""
    methods = {name: each for file in METHODS for name, each in read(file).items()}
    for option, known in {"phase": read("plan.yaml"), "methods": methods, "tasks": KINDS | GAMES}.items():
        given = getattr(options, option)
        if unknown := sorted(set(given.split(",")) - set(known)) if given else []:
            raise SystemExit(f"--{option}: {', '.join(unknown)} is none of {', '.join(known)}")


def validate(every: Sequence[Point], plan: Mapping[str, Any]) -> None:
    """Raise SystemExit for a method whose recipe is wrong, before the model that it starts from is trained."""
    for point in {json.dumps([point.method, point.task, dict(point.settings)]): point for point in every}.values():
        try:
            fgrl.validate(recipe_of(point, plan), {**overrides(point, plan), "vars.start": "start/model"})
        except FgrlError as error:
            raise SystemExit(f"{point.method}: {error}") from error


def untuned(plan: Mapping[str, Any], every: Sequence[Point]) -> list[str]:
    """Return the methods that should run with tuned settings but have not been tuned. If each task has its own
    settings, a method must be tuned on all its tasks.
    """
    if not plan.get("tuned"):
        return []
    methods = methods_of(plan)
    known = {task: tuned(task if plan.get("of_task") else "", tuning(plan)) for task in {point.task for point in every}}
    return list(
        dict.fromkeys(
            point.method for point in every if methods[point.method].get("as", point.method) not in known[point.task]
        )
    )


def wanted(point: Point, options: argparse.Namespace) -> bool:
    """Return True if the options do not exclude a run."""
    return (
        (not options.methods or point.method in options.methods.split(","))
        and (not options.tasks or point.task in options.tasks.split(","))
        and (not options.seeds or point.seed in seeds_of(options.seeds))
    )


def result(point: Point, plan: Mapping[str, Any], runs: str) -> dict[str, Any]:
    """Run one point of a phase and return its line."""
    given = {
        **overrides(point, plan),
        "vars.start": plan.get("started") or start(plan.get("start", "start.yaml"), point.task, runs),
    }
    begin = time.process_time()
    finished = fgrl.run(recipe_of(point, plan), given, seed=point.seed, runs=runs, progress=False, page=False)
    numbers = {
        f"{each['model']}.{NUMBERS[each['number']]}": each["mean"]
        for each in finished.numbers().to_dict("records")
        if each["number"] in NUMBERS
    }
    policy = finished.stage("policy")
    log = [row.dropna().to_dict() for _, row in policy.log().iterrows()]
    stored = policy.product / "rollouts.jsonl"
    credit = quality_of_turns(stored) if point.task in GAMES else quality_of(stored, task(point.task, PARTS, FILLERS))
    return {
        "key": point.key, "method": point.method, "task": point.task, "seed": point.seed, "settings": dict(point.settings),
        **{key: round(value, 5) for key, value in {**numbers, **curve(log), **chosen_change(log), **iterations(log), **credit, **held_out(finished)}.items()},
        "processor seconds": round(time.process_time() - begin, 1), **seconds(finished),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")), "processor": processor(),
    }  # fmt: skip


def seconds(finished: fgrl.FinishedRun) -> dict[str, float]:
    """Return the seconds of the method's stages: of the policy, and of the stages that it learns from first, which
    several methods may share.
    """
    own = {name: stage.seconds for name, stage in finished.stages.items() if name != "evaluate"}
    return {"seconds of the policy": round(own.pop("policy"), 1), "seconds before": round(sum(own.values()), 1)}


def held_out(finished: fgrl.FinishedRun) -> dict[str, float]:
    """Return the results of a model that learned from labels on held-out labels, and the number of steps after which it
    was best; {} if no labels were held out.
    """
    for summary in (stage.summary for stage in finished.stages.values()):
        if "holdout" in summary:
            after = summary["holdout"]["after"]
            numbers = {f"held-out {name}": after[name] for name in ("loss", "accuracy") if name in after}
            return numbers | ({"best step": summary["best"]["step"]} if "best" in summary else {})
    return {}


def curve(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean over the evaluations of a training; {} for an offline training."""
    values = [row[key] for row in log for key in row if key.endswith("quality.right") and row[key] is not None]
    return {"curve": statistics.mean(values)} if values else {}


def chosen_change(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the change of the log-probability of chosen answers by a training on pairs: nats, mean of its last
    quarter; {} for any other training.
    """
    values = [row["log_ratio_chosen"] for row in log if row.get("log_ratio_chosen") is not None]
    return {"chosen": statistics.mean(values[-max(1, len(values) // 4) :])} if values else {}


def iterations(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the costs of a training's iterations, and the variety of its last answers; {} for an offline training.

    drawn: tokens of answers and continuations. read: tokens that the policy reads for the reward. The cost of a reward
    model or discriminator is only in the seconds. seconds per iteration: drawing, scoring and training.
    """
    rows = [row for row in log if "seconds/collect" in row]
    if not rows:
        return {}
    parts = ("seconds/collect", "seconds/score", "seconds/train")
    return {
        "drawn": sum(ANSWERS * row["tokens"] + row.get("policy/generated_tokens", 0.0) for row in rows),
        "read": sum(row.get("policy/forward_tokens", 0.0) for row in rows),
        "seconds an iteration": statistics.mean(sum(row.get(part, 0.0) for part in parts) for row in rows),
        "distinct": rows[-1]["distinct"],
    }


def processor() -> str:
    """Return the name of this machine's processor, and of its GPU."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([names[0] if names else platform.machine(), *gpu])


def budget(options: argparse.Namespace) -> None:
    """Print the number of runs and the seconds of each phase, spent and left."""
    plan = read("plan.yaml")
    known: dict[tuple[str, str], list[float]] = defaultdict(list)
    alike = {phase: kinds_of_run(phase, each) for phase, each in plan.items()}
    for phase in plan:
        for line in lines(phase):
            known[alike[phase].get(line["method"], (file_of(plan[phase]), line["method"]))].append(cost(line))
    print(
        "| phase | runs | seconds for a run | hours | done | hours spent | hours left |\n|---|---|---|---|---|---|---|"
    )
    hours, hours_spent, hours_left = 0.0, 0.0, 0.0
    for phase in plan:
        done, every, methods = {line["key"] for line in lines(phase)}, points(phase), methods_of(plan[phase])
        costs = {
            point.key: statistics.mean(
                known[alike[phase][point.method]] or [expected(methods[point.method], plan[phase])]
            )
            / 3600
            for point in every
        }
        total, left = sum(costs.values()), sum(each for key, each in costs.items() if key not in done)
        spent = sum(map(cost, lines(phase))) / 3600
        hours, hours_spent, hours_left = hours + total, hours_spent + spent, hours_left + left
        print(
            f"| {phase} | {len(every)} | {3600 * total / max(1, len(every)):.1f} | {total:.1f} | {len(done)} | {spent:.1f} | {left:.1f} |"
        )
    print(f"| all | | | {hours:.1f} | | {hours_spent:.1f} | {hours_left:.1f} |")


def kinds_of_run(phase: str, plan: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return a group for each method, of runs that take about the same time: recipe and method. If trials share what is
    learned before the policy (`takes`), the phase belongs to the group, too.
    """
    return {name: (phase if "takes" in each else file_of(plan), name) for name, each in methods_of(plan).items()}


def expected(method: Mapping[str, Any], plan: Mapping[str, Any]) -> float:
    """Return the expected seconds of a run of a method that has no line yet. Trials with several rates of the policy
    share what is learned before.
    """
    before, policy = method.get("takes", (0.0, SECONDS[file_of(plan)]))
    return float(before / len(plan.get("rates", [1])) + policy)


def cost(line: Mapping[str, Any]) -> float:
    """Return the seconds of a run. If an earlier, interrupted run had trained its policy, they are wall-clock
    seconds.
    """
    own, policy = line["processor seconds"], line.get("seconds of the policy", 0.0)
    return float(policy if own < policy / 2 else own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="run what is missing")
    for option in ("--phase", "--methods", "--tasks", "--seeds"):
        runner.add_argument(option, help="only these")
    runner.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many")
    runner.add_argument("--runs", default="runs")
    runner.set_defaults(do=run)
    commands.add_parser("budget", help="how much there is to run").set_defaults(do=budget)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
