"""Evaluation of models on named tasks by lm-evaluation-harness."""

from __future__ import annotations

import contextlib
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from statistics import NormalDist
from typing import Any

import datasets
import numpy as np
import torch

from fgrl.base import lazy, ranks
from fgrl.base.errors import DataError
from fgrl.base.files import write_json, write_json_lines
from fgrl.feedback.llm import together
from fgrl.kinds import Better, Meaning
from fgrl.measuring import comparison
from fgrl.measuring.statistics import Estimate, Measured, difference, weighted_mean
from fgrl.registry.problems import nearest

evaluator = lazy.load("lm_eval.evaluator")
huggingface = lazy.load("lm_eval.models.huggingface")
tasks = lazy.load("lm_eval.tasks")
utils = lazy.load("lm_eval.utils")

GROUP = 16
"""Number of batches of requests that a process answers at a time."""
DRAWS = 2000
"""Number of samples of the harness's own bootstrap, for metrics that are not a mean (its default is 100,000)."""

Results = dict[str, Any]


def run(stage: Any, run: Any, system: str | None) -> dict[str, Any]:
    """Evaluate every model on every task, and write `metrics.json` and the harness's own results."""
    with quiet():
        manager = task_manager(stage)
        results: dict[str, Results] = {}
        # 1. the harness's results, one file for each model and answer
        for name, spec in stage.models.items():
            parts: list[Results] = []
            for number in range(stage.answers):
                part = run.dir / f"lm_eval-{name}-{number}.json"
                if not part.exists():
                    which = f" (answer {number + 1} of {stage.answers})" if stage.answers > 1 else ""
                    run.say(f"{name}: {', '.join(benchmark.task for benchmark in stage.tasks)}{which}")
                    found = evaluate(stage, run, manager, run.model(spec), system, number)
                    if run.rank == 0:
                        write_json(part, found)
                    ranks.meet()
                parts.append(json.loads(part.read_text(encoding="utf-8")))
                run.stop_if_interrupted()
            results[name] = merged(parts)
    if not ranks.leave():
        return {}
    # 2. what it recorded, beside the numbers
    folder = run.out / "lm_eval"
    folder.mkdir(exist_ok=True)
    for name, recorded in results.items():
        for task, samples in recorded.get("samples", {}).items():
            write_json_lines(folder / f"{name}-{task}.jsonl".replace("/", "_"), samples)
        write_json(folder / f"{name}.json", {key: value for key, value in recorded.items() if key != "samples"})
    # 3. numbers
    metrics = measured(results, stage.baseline, stage.level)
    comparison.write(run.out, stage.baseline, metrics, meanings(results))
    return {"models": list(results), "tasks": list(metrics)}


def task_manager(stage: Any) -> Any:
    """Return the index of tasks. The harness's own thousands of tasks are only read if a task is not in the user's
    folder.
    """
    if stage.task_folder is not None:
        own = tasks.TaskManager(include_path=stage.task_folder, include_defaults=False)
        if all(benchmark.task in own.all_tasks for benchmark in stage.tasks):
            return own
    manager = tasks.TaskManager(include_path=stage.task_folder)
    for benchmark in stage.tasks:
        if benchmark.task not in manager.all_tasks:
            near = nearest(benchmark.task, list(manager.all_tasks))
            raise DataError(
                f'lm_eval: the harness has no task "{benchmark.task}"'
                + (f'; did you mean "{near}"?' if near else "")
                + " (your own tasks: `task_folder`)"
            )
    return manager


def load_tasks(stage: Any, manager: Any) -> list[Any]:
    """Return new task objects (they store the answers that they get), with their number of examples."""
    tasks: list[Any] = []
    for benchmark in stage.tasks:
        try:
            with contextlib.chdir(stage.task_folder or "."):
                loaded = manager.load([benchmark.task])
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            first = str(error).strip().splitlines()[0]
            raise DataError(
                f"lm_eval: task {benchmark.task} cannot be loaded: {first} (its data come from the hub: that needs the "
                "network or a filled cache)"
            ) from error
        for name, task in loaded["tasks"].items():
            if benchmark.num_fewshot is not None:
                set_shots(name, task, benchmark.num_fewshot)
        group = loaded.get("groups", {}).get(benchmark.task)
        tasks += list(loaded["tasks"].values()) if group is None else [group]
    return tasks


def set_shots(name: str, task: Any, shots: int) -> None:
    """Set the number of examples. A task that fixes it at 0 has its examples elsewhere, or none."""
    if task.get_config("num_fewshot") == 0 and shots != 0:
        raise DataError(
            f"lm_eval: task {name} fixes num_fewshot at 0 (its prompt may contain its own examples, as truthfulqa_mc1 has "
            "six): leave num_fewshot out"
        )
    task.set_config(key="num_fewshot", value=shots)


def evaluate(stage: Any, run: Any, manager: Any, model: Any, system: str | None, number: int = 0) -> Results:
    """Return the harness's results of one model, JSON-ready. For every answer after number 0, only tasks that are
    answered by generating are included.
    """
    seed = run.seed % 2**32
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed + number)
    asked = [task for task in load_tasks(stage, manager) if not number or generates(manager.load([task])["tasks"])]
    if not asked:
        return {"results": {}}
    loaded = manager.load(asked)
    for task in loaded["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=seed)
        if generates({"": task}) and (options := generation(stage)):
            task.set_config(key="generation_kwargs", value=options, update=True)
    limits = [limit for limit in (stage.limit, run.limit) if limit is not None]
    lm = huggingface.HFLM(pretrained=model.net, tokenizer=model.tokenizer, batch_size=stage.batch_size)
    with model.low_precision():
        evaluated = evaluator.evaluate(
            lm=shared(lm, run),
            task_dict=loaded,
            limit=min(limits, default=None),
            bootstrap_iters=DRAWS,
            system_instruction=system,
            apply_chat_template=stage.chat_template,
            fewshot_as_multiturn=stage.chat_template,
        )
    everything = evaluated | {"lm_eval_version": metadata.version("lm_eval")}
    return json.loads(json.dumps(everything, default=utils.handle_non_serializable))


def shared(lm: Any, run: Any) -> Any:
    """Return the harness's model, whose processes share requests in groups that do not depend on their number. Sampled
    answers come from one random stream, so each process has all of them.
    """
    for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        setattr(lm, kind, partial(_answered, getattr(lm, kind), GROUP * lm.batch_size, run))
    return lm


def _answered(answer: Callable[..., list[Any]], size: int, run: Any, requests: Sequence[Any]) -> list[Any]:
    options = [part for one in requests for part in one.args if isinstance(part, dict)]
    if any(each.get("do_sample") or each.get("temperature") for each in options):
        return answer(requests)
    groups = [requests[start : start + size] for start in range(0, len(requests), size)]
    own = []
    with run.progress("requests", len(requests) // ranks.connected()) as ticker:
        for number, group in enumerate(groups):
            if ranks.is_mine(number):
                own.append((number, answer(group, disable_tqdm=True)))
                ticker.advance(len(group))
    return [each for _number, found in sorted(together.everybody(own), key=lambda pair: pair[0]) for each in found]


def generates(loaded: Mapping[str, Any]) -> bool:
    """Return True if a question of one of these tasks is answered by generating."""
    return any(task.get_config("output_type") == "generate_until" for task in loaded.values())


def generation(stage: Any) -> dict[str, Any]:
    """Return the stage's settings of generated answers, under the harness's names."""
    options: dict[str, Any] = {}
    if stage.max_new_tokens is not None:
        options["max_gen_toks"] = stage.max_new_tokens
    if stage.temperature is not None:
        options |= {"temperature": stage.temperature, "do_sample": stage.temperature > 0}
    options |= {name: value for name in ("top_p", "top_k") if (value := getattr(stage, name)) is not None}
    return options


def merged(parts: Sequence[Results]) -> Results:
    """Return the results of several answers to each question as one: means of numbers and of standard errors, and all
    samples.

    The mean of standard errors is that of one answer to each question: its reduction by more answers is ignored.
    """
    whole = dict(parts[0])
    for section in ("results", "groups"):
        for task, numbers in parts[0].get(section, {}).items():
            every = [part[section][task] for part in parts if task in part.get(section, {})]
            means = {
                key: sum(numbers_of_part[key] for numbers_of_part in every) / len(every)
                for key, value in numbers.items()
                if "," in key and isinstance(value, int | float)
            }
            whole[section] = whole[section] | {task: numbers | means}
    whole["samples"] = {
        task: [
            sample | {"answer": number}
            for number, part in enumerate(parts)
            for sample in part.get("samples", {}).get(task, [])
        ]
        for task in parts[0].get("samples", {})
    }
    return whole


def measured(results: Mapping[str, Results], baseline: str | None, level: float) -> dict[str, Any]:
    """Return `metrics` of `metrics.json`: the harness's numbers with their intervals, by task and model."""
    metrics: dict[str, Any] = {}
    for model, recorded in results.items():
        for task, numbers in (recorded["results"] | recorded.get("groups", {})).items():
            numbers = {
                title(key): interval(value, numbers, key, level).model_dump()
                for key, value in numbers.items()
                if is_number(key)
            }
            if numbers:
                metrics.setdefault(task, {})[model] = numbers
    for task, by_model in metrics.items():
        first = next(iter(results.values()))
        if baseline is not None:
            by_model["differences"] = {
                model: changes(task, results[model], results[baseline], level) for model in results if model != baseline
            }
        by_model["about"] = about(task, first, level)
    return metrics


def meanings(results: Mapping[str, Results]) -> dict[str, Any]:
    """Return the better side of each number, by task, if the harness knows it, in the form of `held_out.meanings`."""
    known: dict[str, Any] = {}
    for recorded in results.values():
        for task, sides in recorded.get("higher_is_better", {}).items():
            numbers = known.setdefault(task, {"purpose": "goal", "numbers": {}})["numbers"]
            for metric, higher in sides.items():
                if higher is not None:
                    better: Better = "higher" if higher else "lower"
                    for pattern in (metric, f"{metric} *"):
                        numbers[pattern] = Meaning(f"{task}: {{number}}", better)._asdict()
    return known


def is_number(key: str) -> bool:
    """Return True for `metric,filter` that is not a standard error."""
    metric, comma, _filter = key.partition(",")
    return bool(comma) and not metric.endswith("_stderr")


def title(key: str) -> str:
    """Return a title: `acc` for `acc,none`, `exact_match strict` for `exact_match,strict`."""
    metric, _, named = key.partition(",")
    return metric if named == "none" else f"{metric} {named}"


def interval(value: Any, numbers: Mapping[str, Any], key: str, level: float) -> Estimate:
    """Return the harness's number, and its standard error as an interval (none for one question, and for a group of
    metrics without one).
    """
    metric, _, named = key.partition(",")
    error = numbers.get(f"{metric}_stderr,{named}")
    n = int(numbers.get("sample_len") or 0)
    if not isinstance(value, int | float):
        return Estimate(mean=None, n=n, note=f"the harness says {value}")
    if not isinstance(error, int | float):
        return Estimate(mean=value, n=n, note="the harness gives no standard error")
    reach = NormalDist().inv_cdf((1 + level) / 2) * error
    return Estimate(mean=value, low=value - reach, high=value + reach, n=n, groups=n)


def changes(task: str, results: Results, baseline: Results, level: float) -> dict[str, Any]:
    """Return paired differences to the baseline of the numbers that are means over questions."""
    numbers = results["results"].get(task, {})
    differences: dict[str, Any] = {}
    for key in filter(is_number, numbers):
        sides = mean_of(task, key, results), mean_of(task, key, baseline)
        if sides[0] is not None and sides[1] is not None:
            differences[title(key)] = difference(sides[0], sides[1], level=level).model_dump()
    return differences


def mean_of(task: str, key: str, results: Results) -> Measured | None:
    """Return a number as the mean of the harness's records for each question; None if it is not such a mean."""
    metric, _, named = key.partition(",")
    samples = [sample for sample in results.get("samples", {}).get(task, []) if sample["filter"] == named]
    values: Sequence[Any] = [sample.get(metric) for sample in samples]
    reported = results["results"].get(task, {}).get(key)
    if not values or not all(isinstance(value, int | float) for value in (*values, reported)):
        return None
    if abs(sum(values) / len(values) - reported) > 1e-9 * max(1.0, abs(reported)):
        return None
    return weighted_mean([float(value) for value in values], [sample["doc_id"] for sample in samples])


def about(task: str, results: Results, level: float) -> str:
    """Return a description of the computation."""
    shots = results.get("n-shot", {}).get(task)
    version = results.get("versions", {}).get(task)
    known = [
        f"lm-evaluation-harness {results.get('lm_eval_version', '')}".strip(),
        f"task version {version}" if version not in (None, "N/A", "Yaml") else "",
        f"{shots}-shot" if shots is not None else "",
        f"{level:.0%} intervals are normal, from its standard errors",
    ]
    return ", ".join(part for part in known if part)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let the harness report only errors inside the context."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
