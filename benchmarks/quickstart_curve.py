"""Draw the curve of the quickstart from its newest finished run.

fgrl run recipes/quickstart.yaml
python benchmarks/quickstart_curve.py [--recipe quickstart] [--runs runs] [--figure docs/quickstart.svg]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from fgrl.experiments.pipeline.log import read_log

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="quickstart", help="its name: that of a folder of the runs")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--figure", type=Path, default=DOCS / "quickstart.svg")
    options = parser.parse_args()
    files = (options.runs / options.recipe).glob("*/summary.json")
    summaries = {file.parent: json.loads(file.read_text("utf-8")) for file in files}
    finished = [folder for folder, summary in summaries.items() if "evaluate" in summary["stages"]]
    if not finished:
        raise SystemExit(f"no finished run in {options.runs / options.recipe}: run the recipe first")
    folder = max(finished)
    stages = summaries[folder]["stages"]
    place = {name: (folder / stage["dir"]).resolve() for name, stage in stages.items()}
    log = read_log(place["policy"] / "log.jsonl")
    report = json.loads((place["evaluate"] / "out" / "metrics.json").read_text(encoding="utf-8"))
    kept = {model: numbers["kept"] for model, numbers in report["metrics"]["rule"].items() if model != "differences"}

    plt.rcParams |= {"svg.hashsalt": "fgrl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    plt.rcParams |= {"axes.spines.right": False, "figure.facecolor": "white"}
    figure, (reward, kl, share) = plt.subplots(1, 3, figsize=(8.4, 2.5), layout="constrained")
    steps = [row["step"] + 1 for row in log]
    for axis, name, title in (
        (reward, "reward", "reward of a response"),
        (kl, "kl", "KL to the SFT model (nats)"),
    ):
        axis.plot(steps, [row[name] for row in log], color="#0b6e99", marker=".")
        axis.set(title=title, xlabel="iteration")
    names = [report["baseline"], *(name for name in kept if name != report["baseline"])]
    for i, name in enumerate(names):
        one = kept[name]
        share.errorbar(
            i, one["mean"], yerr=[[one["mean"] - one["low"]], [one["high"] - one["mean"]]],
            fmt="o", color="#0b6e99" if i else "#8a8a8a", capsize=4,
        )  # fmt: skip
    share.set(title="held-out: keeps the rule", xticks=range(len(names)), xticklabels=names, ylim=(0, 1))
    share.margins(x=0.5)
    figure.savefig(options.figure, metadata={"Date": None})
    print(options.figure)


if __name__ == "__main__":
    main()
