"""Tables of the credit benchmark, from the lines under results/.

python -m fgrl_benchmark.tables power          what can be told apart, per task (phases pilot and test)
python -m fgrl_benchmark.tables tuned          the settings that tuning chose
python -m fgrl_benchmark.tables defaults       what methods teach with the settings of their rows (phase untuned)
python -m fgrl_benchmark.tables own            what they teach with settings that were tuned on the same task alone (phase own_settings)
python -m fgrl_benchmark.tables methods        the table of methods (phases of the test, and what was added to them)
python -m fgrl_benchmark.tables headline       the same, a row for each method
python -m fgrl_benchmark.tables imitation      methods that begin after imitation of few references, or of some that are about half (phases few and half)
python -m fgrl_benchmark.tables labels         methods by how many labels they have (phases labels_bounds, labels and labels_64k)
python -m fgrl_benchmark.tables places         where the credit is, by kind of word (phase untuned)
python -m fgrl_benchmark.tables costs          tokens and seconds of each method, and what it changes besides
python -m fgrl_benchmark.tables smollm2        the table of methods of phase smollm2
python -m fgrl_benchmark.tables losses         what losses on pairs do to the probability of the chosen answers (phase claims and those of `methods`)
python -m fgrl_benchmark.tables worse          credit made worse on purpose
python -m fgrl_benchmark.tables predicts       which measure of credit says what it teaches
python -m fgrl_benchmark.tables sent           the methods that were sent in, a table for each kind of task
python -m fgrl_benchmark.tables less A B       A less B, of any two methods, or mistakes such as '{"drop": 0.5}'
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

from fgrl_benchmark import benchmark, label_curves
from fgrl_benchmark import sheet as sheets
from fgrl_benchmark.comparisons import (
    EQUAL_ITERATIONS,
    EXACT,
    ORACLE,
    PRIMARY,
    QUALITY,
    SCALAR,
    TEST,
    Values,
    by_task,
    detectable,
    differences,
    listed,
    made_worse,
    p_value,
    paired,
    seeds_for,
    share_of_oracle,
    shared_seeds,
    shown,
    shown_change,
    with_credit,
)
from fgrl_benchmark.standing import markdown, standing_of
from fgrl_benchmark.worlds import WORLDS


def power() -> None:
    """Print per phase and task: right words before and after, differences to the scalar, and the number of seeds to
    find them.
    """
    print("| phase | task | method | right words | before | difference to the scalar |", end="")
    print(f" seeds for it | smallest difference of 20 seeds |\n{'|---' * 8}|")
    for phase in ("pilot", "test"):
        for name, methods in by_task(phase).items():
            for method, lines in methods.items():
                change = paired(methods, method, SCALAR) if method != SCALAR else []
                told = len(change) > 1
                cells = [
                    phase, name, method, shown([line[PRIMARY] for line in lines.values()]),
                    f"{statistics.mean(line['start.right'] for line in lines.values()):.3f}",
                    shown_change(change), str(seeds_for(change) or "more than 1000") if told else "",
                    f"{detectable(change):.3f}" if told else "",
                ]  # fmt: skip
                print(f"| {' | '.join(cells)} |")


def tuned() -> None:
    """Print the settings that tuning chose."""
    print("| method | settings | right words |\n|---|---|---|")
    for method, settings in benchmark.tuned().items():
        values = [
            line[PRIMARY]
            for line in benchmark.lines("tune")
            if line["method"] == method and line["settings"] == settings
        ]
        print(f"| {method} | {json.dumps(settings)} | {statistics.mean(values):.3f} |")


def methods() -> None:
    """Print each method on each task, among those that are told the same."""
    found = by_task(*TEST)
    compared(found)
    say_missing(found)


def smollm2() -> None:
    """Print each method on each task with the larger model."""
    compared(by_task("smollm2"))


def headline() -> None:
    """Print the methods of the test."""
    found = by_task(*TEST)
    ranked(found)
    say_missing(found)


def imitation() -> None:
    """Print the methods that start from a model that imitated few answers, or answers to about half of the questions,
    and that model's right words.
    """
    for phase in ("few", "half"):
        found = by_task(phase)
        for name, methods in found.items():
            begun = statistics.mean(line["start.right"] for line in methods[SCALAR].values())
            print(
                f"{phase}, {name}: right words {begun:.3f} before, {SCALAR} {shown([line[PRIMARY] for line in methods[SCALAR].values()])}"
            )
        ranked(found)


def labels() -> None:
    """Print methods by their number of labels."""
    print("\n".join(label_curves.table(by_task(*label_curves.PHASES))))


def ranked(found: Values) -> None:
    """Print for each method and task its difference to the scalar, in bold if it is told apart from 0 after the correction, and its share
    of the oracle's advantage.
    """
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    seeds: dict[str, dict[int, None]] = defaultdict(dict)
    for group, method, name, change, p in differences(found):
        seeds[method][len(change)] = None
        share = share_of_oracle(found[name], method)
        cell = bold(shown(change), p)
        rows[group, method][name] = cell if share is None or method == ORACLE else f"{cell}; {share[0]:.2f}"
    tasks = [name for name in found if any(name in cells for cells in rows.values())]
    print(f"| told | method | seeds | {' | '.join(f'`{name}`' for name in tasks)} |\n|{'---|' * (3 + len(tasks))}")
    for (group, method), cells in rows.items():
        counts = ", ".join(map(str, seeds[method]))
        print(f"| {group} | `{method}` | {counts} | {' | '.join(cells.get(name, '') for name in tasks)} |")


def say_missing(found: Values) -> None:
    """Name the methods of the test's phases, or of no phase, that have no line."""
    elsewhere = listed("claims", "smollm2") - listed(*TEST)
    missing = set(benchmark.read("methods.yaml")) - elsewhere - {name for lines in found.values() for name in lines}
    if missing:
        print(f"without a line: {', '.join(sorted(missing))}", file=sys.stderr)


def shown_p(p: float) -> str:
    """Return a p-value with four digits, or that it is smaller."""
    return f"{p:.4f}" if p >= 1e-4 else "<0.0001"


def compared(found: Values) -> None:
    """Print the methods' differences to the scalar, corrected together; all numbers are of the seeds that the scalar has, too."""
    print(
        "| told | method | task | seeds | right words | difference to the scalar | p (Holm) | share of the oracle's advantage |",
        end="",
    )
    print(" curve | precision | recall | AUC | KL | seconds of the policy | seconds before |")
    print("|" + "---|" * 15)
    group = benchmark.read("methods.yaml")[SCALAR]["told"]
    scalar = [(group, SCALAR, name, [], 1.0) for name, methods in found.items() if SCALAR in methods]
    for group, method, name, change, p in [*scalar, *differences(found)]:
        lines = [found[name][method][seed] for seed in shared_seeds(found[name], method, SCALAR)]
        share = share_of_oracle(found[name], method) if change else None
        row = [
            group, f"`{method}`", f"`{name}`", str(len(lines)), shown([line[PRIMARY] for line in lines]), shown_change(change),
            shown_p(p) if change else "", "" if share is None else f"{share[0]:.2f} [{share[1]:.2f}, {share[2]:.2f}]",
            *(mean(lines, key) for key in ("curve", "precision", "recall", "auc", "policy.kl")),
            *(mean(lines, key, statistics.median) for key in ("seconds of the policy", "seconds before")),
        ]  # fmt: skip
        print(f"| {' | '.join(row)} |")


def bold(text: str, p: float) -> str:
    """Return a text in bold if p is below 0.05."""
    return f"**{text}**" if p < 0.05 else text


def defaults() -> None:
    """Print the effect of methods with the settings of their rows, and the gain from tuned settings, paired over
    seeds.
    """
    found, own = by_task(*TEST), by_task("untuned")
    columns = "".join(f" `{name}`: defaults | less `even` with defaults | tuned less defaults |" for name in own)
    print(f"| told | method |{columns}\n|{'---|' * (2 + 3 * len(own))}")
    for method, each in benchmark.read("methods.yaml").items():
        row: list[str] = []
        for name, lines in own.items():
            sides = {
                "tuned": found[name].get(method, {}),
                "defaults": lines.get(method, {}),
                SCALAR: lines.get(SCALAR, {}),
            }
            row += [
                shown([line[PRIMARY] for line in sides["defaults"].values()]) if sides["defaults"] else "",
                shown_change(paired(sides, "defaults", SCALAR)),
                shown_change(paired(sides, "tuned", "defaults")),
            ]
        if any(row):
            print(f"| {each['told']} | `{method}` | {' | '.join(row)} |")


def own() -> None:
    """Print the effect of methods with the best settings on both tasks together, and with the best settings on the same
    task.
    """
    print(
        "| method | task | settings of both tasks | settings of this task | right words with these | less those with both |",
        end="",
    )
    print(f" less `{SCALAR}` |\n{'|---' * 7}|")
    shared, both = by_task(*TEST), benchmark.tuned()
    for name, methods in by_task("own_settings").items():
        for method, lines in methods.items():
            sides = {"own": lines, "shared": shared[name].get(method, {}), SCALAR: shared[name].get(SCALAR, {})}
            settings = [
                ", ".join(
                    f"{key.removeprefix('vars.').removeprefix('stages.policy.')} {value}" for key, value in each.items()
                )
                for each in (both.get(method, {}), next(iter(lines.values()))["settings"])
            ]
            cells = [
                *settings,
                shown([line[PRIMARY] for line in lines.values()]),
                *(shown_change(paired(sides, "own", other)) for other in ("shared", SCALAR)),
            ]
            print(f"| `{method}` | `{name}` | {' | '.join(cells)} |")


PLACES = (
    "auc",
    "precision of positive",
    "precision of negative",
    "on irrelevant",
    "recall of right",
    "recall of wrong",
)


def places() -> None:
    """Print the place of the credit in the first iteration, by kind of word."""
    print(f"| told | method | task | {' | '.join(PLACES)} |\n{'|---' * (3 + len(PLACES))}|")
    for name, methods in by_task("untuned").items():
        for method, each in benchmark.read("methods.yaml").items():
            lines = [] if "begins" in each else methods.get(method, {}).values()
            values = [[line[number] for line in lines if number in line] for number in PLACES]
            if any(values):
                cells = [shown(value) if value else "" for value in values]
                print(f"| {each['told']} | `{method}` | `{name}` | {' | '.join(cells)} |")


COSTS = {
    "tokens drawn": "drawn", "tokens the policy reads for the reward": "read", "wall-clock s an iteration": "seconds an iteration",
    "s of the policy": "seconds of the policy", "s before": "seconds before",
}  # fmt: skip
CHANGES = {"mean during training": "curve", "KL": "policy.kl", "distinct word pairs": "distinct"}


def costs() -> None:
    """Print the costs of methods, medians over seeds, and their side effects, means. The reading of reward models
    counts only in the seconds.
    """
    print(f"| method | task | {' | '.join([*COSTS, *CHANGES])} |\n|{'---|' * (2 + len(COSTS) + len(CHANGES))}")
    for name, methods in by_task(*TEST).items():
        for method, every in methods.items():
            lines = list(every.values())
            values = [mean(lines, key, statistics.median) for key in COSTS.values()]
            changes = [[line[key] for line in lines if key in line] for key in CHANGES.values()]
            values += [shown(change) if change else "" for change in changes]
            print(f"| `{method}` | `{name}` | {' | '.join(values)} |")


def losses() -> None:
    """Print for each training on pairs the change of the log-probability of the chosen answers, and the change in right
    words.
    """
    print(
        "| method | task | seeds | change of the chosen answers' log-probability, nats per answer | right words | before |\n|---|---|---|---|---|---|"
    )
    for name, methods in by_task(*TEST, "claims").items():
        for method, every in methods.items():
            lines = [line for line in every.values() if "chosen" in line]
            if lines:
                before = statistics.mean(line["start.right"] for line in lines)
                values = (shown([line[number] for line in lines]) for number in ("chosen", PRIMARY))
                print(f"| `{method}` | `{name}` | {len(lines)} | {' | '.join(values)} | {before:.3f} |")


def worse() -> None:
    """Print the oracle made worse: the place of its credit, its effect, and the cost of the mistakes, paired over
    seeds.
    """
    found = made_worse()
    columns = "".join(f" `{name}`: precision, recall | right words | less those of the oracle |" for name in found)
    print(f"| mistakes |{columns}\n|{'---|' * (1 + 3 * len(found))}")
    for mistakes in dict.fromkeys(each for methods in found.values() for each in methods):
        row = [named(mistakes)]
        for methods in found.values():
            lines = list(methods.get(mistakes, {}).values())
            row += [
                f"{mean(lines, 'precision')}, {mean(lines, 'recall')}", shown([line[PRIMARY] for line in lines]) if lines else "",
                shown_change(paired(methods, mistakes, ORACLE)) if mistakes != ORACLE else "",
            ]  # fmt: skip
        print(f"| {' | '.join(row)} |")


def named(mistakes: str) -> str:
    """Return the shown name of a method, or of mistakes of the oracle."""
    if not mistakes.startswith("{"):
        return f"`{mistakes}`"
    return ", ".join(f"{name} {value}" for name, value in json.loads(mistakes).items())


def less(method: str, other: str) -> None:
    """Print the difference of two methods, or of two kinds of mistakes, on each task, paired over seeds; p is not corrected."""
    found = made_worse() if "{" in method + other else by_task(*TEST, "claims")
    names = [known(each, found) for each in (method, other)]
    print("| task | seeds | right words less those of the other | p |\n|---|---|---|---|")
    for task, methods in found.items():
        change = paired(methods, *names)
        if len(change) > 1:
            print(f"| `{task}` | {len(change)} | {shown(change)} | {shown_p(p_value(change))} |")


def known(name: str, found: Values) -> str:
    """Return the name of a method, or of mistakes, in the form of the lines. Raises SystemExit if no line has it."""
    wanted = json.dumps(json.loads(name)) if name.startswith("{") else name
    wanted = ORACLE if wanted == EXACT else wanted
    names = sorted({each for methods in found.values() for each in methods})
    if wanted not in names:
        raise SystemExit(f"{name} has no lines; there are {', '.join(names)}")
    return wanted


def predicts() -> None:
    """Print the rank correlation of right words with the quality of the credit, over mistakes and the methods of the test, or of all
    phases whose methods train for as many iterations.
    """
    from scipy.stats import spearmanr

    found = made_worse()
    methods_of = {"the test": by_task("test"), "all phases": by_task(*EQUAL_ITERATIONS)}
    print(f"| task | mistakes, and methods of | credits | {' | '.join(QUALITY)} |\n|{'---|' * (3 + len(QUALITY))}")
    for name, mistakes in found.items():
        for phases, methods in methods_of.items():
            worse = {kind: lines for kind, lines in with_credit(mistakes).items() if kind not in (SCALAR, ORACLE)}
            every = [list(lines.values()) for each in (worse, with_credit(methods[name])) for lines in each.values()]
            taught = [statistics.mean(line[PRIMARY] for line in lines) for lines in every]
            cells = [
                f"{spearmanr([statistics.mean(line[number] for line in lines) for lines in every], taught).statistic:.2f}"
                for number in QUALITY
            ]
            print(f"| `{name}` | {phases} | {len(every)} | {' | '.join(cells)} |")


def sent() -> None:
    """Print the lines of methods that were sent in (`fgrl benchmark`)."""
    every = [standing_of(sheet) for sheet in sheets.sent()]
    for world in WORLDS.values():
        rows = [each.row(each.name) for each in every if each.world is world]
        if rows:
            head = ["told", "method", "seeds", *(f"`{task}`" for task in world.tasks)]
            print("\n".join(markdown([head, *rows])))


def mean(lines: Sequence[dict], key: str, middle: Callable[[Sequence[float]], float] = statistics.mean) -> str:
    """Return the mean, or another middle, of a number over the lines that have it."""
    values = [line[key] for line in lines if key in line]
    return f"{middle(values):.{0 if middle(values) >= 100 else 2}f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown_tables: dict[str, Callable[..., None]] = {
        each.__name__: each
        for each in (
            power, tuned, defaults, own, methods, headline, imitation, labels, places, costs, smollm2, losses, worse, predicts, sent, less,
        )
    }  # fmt: skip
    parser.add_argument("table", choices=shown_tables)
    parser.add_argument("methods", nargs="*", help="two, for `less`")
    options = parser.parse_args()
    if len(options.methods) != (2 if options.table == less.__name__ else 0):
        parser.error("`less` has two methods, any other table none")
    shown_tables[options.table](*options.methods)


if __name__ == "__main__":
    main()
