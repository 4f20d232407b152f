"""Tables of the credit benchmark over turns, from the lines under results/.

python -m fgrl_benchmark.turn_tables methods     each method on each game (phase turns_test)
python -m fgrl_benchmark.turn_tables headline    the same, a row for each method
python -m fgrl_benchmark.turn_tables outcome     the same, compared with `outcome` in place of `even`
python -m fgrl_benchmark.turn_tables tuned       what tuning saw with each learning rate, and chose (phase turns_tune)
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable

from fgrl_benchmark import benchmark
from fgrl_benchmark.comparisons import (
    ORACLE,
    PRIMARY,
    SCALAR,
    by_task,
    holm,
    p_value,
    paired,
    share_of_oracle,
    shown,
    shown_change,
)

PHASE, TUNING = "turns_test", "turns_tune"
MEANS = {
    "return": "policy.return", "turns": "policy.turns", "KL": "policy.kl", "right sign": "sign", "AUC": "auc",
    "on the useless tool": "useless",
}  # fmt: skip
"""Columns of means over seeds, and the numbers that they are means of."""


def cells(other: str = SCALAR) -> dict[tuple[str, str], tuple[list[float], float]]:
    """Return the differences to a method over seeds by method and game, and p, corrected for the number of all comparisons."""
    found = by_task(PHASE)
    each = {
        (method, name): change
        for method in benchmark.methods_of(benchmark.read("plan.yaml")[PHASE])
        for name, methods in found.items()
        if method != other and len(change := paired(methods, method, other)) > 1
    }
    corrected = holm([p_value(change) for change in each.values()])
    return {cell: (change, p) for (cell, change), p in zip(each.items(), corrected, strict=True)}


def methods() -> None:
    """Print each method on each game."""
    found, told, compared = by_task(PHASE), benchmark.methods_of(benchmark.read("plan.yaml")[PHASE]), cells()
    print(
        "| told | method | game | seeds | successes | before | difference to `even` | p (Holm) | share of the oracle's advantage |",
        end="",
    )
    print(f" {' | '.join(MEANS)} | processor seconds |\n|{'---|' * (10 + len(MEANS))}")
    for method, each in told.items():
        for name, methods in found.items():
            lines = list(methods.get(method, {}).values())
            if not lines:
                continue
            change, p = compared.get((method, name), ([], 1.0))
            share = share_of_oracle(methods, method) if change and method != ORACLE else None
            row = [
                each["told"], f"`{method}`", f"`{name}`", str(len(lines)), shown([line[PRIMARY] for line in lines]),
                f"{statistics.mean(line['start.right'] for line in lines):.3f}", shown_change(change),
                f"{max(p, 1e-4):.4f}" if change else "", "" if share is None else f"{share[0]:.2f} [{share[1]:.2f}, {share[2]:.2f}]",
                *(f"{statistics.mean(values):.2f}" if (values := [line[key] for line in lines if key in line]) else "" for key in MEANS.values()),
                f"{statistics.median(line['processor seconds'] for line in lines):.1f}",
            ]  # fmt: skip
            print(f"| {' | '.join(row)} |")


def headline() -> None:
    """Print the differences to the scalar, in bold if they are significant after the correction, and shares of the
    oracle's advantage.
    """
    compared_with(SCALAR)


def outcome() -> None:
    """Print the differences to one number per conversation whose baseline is also per conversation."""
    compared_with("outcome")


def compared_with(other: str) -> None:
    """Print the differences to a method, and the shares of the oracle's advantage over the scalar."""
    found, told, compared = by_task(PHASE), benchmark.methods_of(benchmark.read("plan.yaml")[PHASE]), cells(other)
    print(f"| told | method | seeds | {' | '.join(f'`{name}`' for name in found)} |\n|{'---|' * (3 + len(found))}")
    for method, each in told.items():
        row, seeds = [], set()
        for name, methods in found.items():
            change, p = compared.get((method, name), ([], 1.0))
            seeds |= {len(change)} - {0}
            share = share_of_oracle(methods, method) if change and other == SCALAR and method != ORACLE else None
            cell = f"**{shown_change(change)}**" if p < 0.05 else shown_change(change)
            row.append(cell if share is None else f"{cell}; {share[0]:.2f}")
        if any(row):
            print(f"| {each['told']} | `{method}` | {', '.join(map(str, sorted(seeds)))} | {' | '.join(row)} |")


def tuned() -> None:
    """Print the share of successes with each learning rate, the mean over seeds, in bold for the chosen rate."""
    values: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in benchmark.lines(TUNING):
        values[line["method"], line["task"]][line["settings"]["vars.lr"]].append(line[PRIMARY])
    plan = benchmark.read("plan.yaml")[TUNING]
    chosen = {name: benchmark.tuned(name, TUNING) for name in plan["tasks"]}
    columns = [(name, rate) for name in plan["tasks"] for rate in plan["rates"]]
    print(f"| method | {' | '.join(f'`{name}` {rate:g}' for name, rate in columns)} |\n|{'---|' * (1 + len(columns))}")
    for method in dict.fromkeys(method for method, _name in values):
        row = []
        for name, rate in columns:
            found = values[method, name].get(rate)
            value = f"{statistics.mean(found):.3f}" if found else ""
            best = method in chosen[name] and chosen[name][method]["vars.lr"] == rate
            row.append(f"**{value}**" if best else value)
        print(f"| `{method}` | {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables: dict[str, Callable[[], None]] = {each.__name__: each for each in (methods, headline, outcome, tuned)}
    parser.add_argument("table", choices=tables)
    tables[parser.parse_args().table]()


if __name__ == "__main__":
    main()
