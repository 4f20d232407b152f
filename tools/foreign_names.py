"""Write what TRL, OpenRLHF, verl and axolotl call their settings, commands and columns: names alone, read from the source.

    pip download --no-deps -d new trl==1.16.0 transformers==5.23.0 openrlhf==0.11.2 verl==0.9.1 axolotl==0.19.0
    pip download --no-deps -d old trl==0.22.2 transformers==4.57.1 openrlhf==0.8.11     # names that people still know
    python tools/foreign_names.py new old     # writes tests/registry/foreign_names.json

`fgrl/base/foreign_names.yaml` says what they are called here; a test compares both. Settings of TRL are those of transformers, too.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

OUT = Path(__file__).resolve().parents[1] / "tests" / "registry" / "foreign_names.json"
SETTINGS = {
    "TRL": r"trl/.*config\.py|trl/scripts/\w+\.py|transformers/training_args\.py",
    "OpenRLHF": r".*openrlhf/cli/train_\w+\.py",
    "verl": r"verl/trainer/config/(_generated_ppo_trainer|sft_trainer_engine)\.yaml",
    "axolotl": r"axolotl/utils/schemas/\w+\.py",
}
COMMANDS = {
    "TRL": r"trl/cli/commands/\w+\.py",
    "OpenRLHF": r".*openrlhf/cli/(\w+)\.py",
    "verl": r"verl/trainer/(main_\w+|sft_trainer)\.py",
    "axolotl": r"axolotl/cli/main\.py",
}
COLUMNS = {
    "TRL": r"trl/(data_utils|trainer/\w+_trainer)\.py",
    "OpenRLHF": r".*openrlhf/(cli/train_\w+|datasets/\w+)\.py",
    "verl": r"verl/utils/dataset/\w+\.py",
    "axolotl": r"axolotl/(prompt_tokenizers|prompt_strategies/.*)\.py",
}
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def settings(name: str, source: str) -> Iterator[str]:
    """Fields of classes, options of argparse, or paths of a YAML file."""
    if name.endswith(".yaml"):
        yield from _paths(yaml.safe_load(source))
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield from (
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            yield from (text.lstrip("-") for text in _texts(node) if text.startswith("--"))


def commands(toolkit: str, name: str, source: str) -> Iterator[str]:
    """Names of commands: of modules that are run, of functions, or as texts."""
    if toolkit in ("OpenRLHF", "verl"):
        yield Path(name).stem
        return
    for node in ast.walk(ast.parse(source)):
        if (
            toolkit == "axolotl"
            and isinstance(node, ast.FunctionDef)
            and any("command" in ast.dump(one) for one in node.decorator_list)
        ):
            yield node.name.replace("_", "-")
        elif toolkit == "TRL" and isinstance(node, ast.Call):
            yield from (text for text in _texts(node) if re.fullmatch(r"[a-z][a-z-]+", text))


def columns(source: str) -> Iterator[str]:
    """Texts by which rows are read: `row["x"]`, `row.get("x")`, `"x" in row`, and defaults of options."""
    for node in ast.walk(ast.parse(source)):
        texts: list[str] = []
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            texts = [str(node.slice.value)]
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            texts = [str(node.left.value)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "add_argument"):
            texts = list(_texts(node))
        yield from (text for text in texts if IDENTIFIER.fullmatch(text))


def _texts(call: ast.Call) -> Iterator[str]:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return (one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _paths(node: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _paths(value, f"{before}{key}.")


def extracted(wheels: list[Path]) -> dict[str, Any]:
    """Return names by toolkit and kind, with the versions that they are of."""
    found: dict[str, Any] = {}
    for wheel in wheels:
        package, version = wheel.name.split("-")[:2]
        toolkit = "TRL" if package == "transformers" else next(one for one in SETTINGS if one.lower() == package)
        names = found.setdefault(toolkit, {"versions": [], "keys": set(), "commands": set(), "columns": set()})
        names["versions"].append(f"{package} {version}")
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                if not name.endswith((".py", ".yaml")):
                    continue
                if re.fullmatch(SETTINGS[toolkit], name):
                    names["keys"] |= set(settings(name, files.read(name).decode()))
                if re.fullmatch(COMMANDS[toolkit], name):
                    names["commands"] |= set(commands(toolkit, name, files.read(name).decode()))
                if re.fullmatch(COLUMNS[toolkit], name):
                    names["columns"] |= set(columns(files.read(name).decode()))
    return {
        toolkit: {kind: sorted(values) for kind, values in names.items()} for toolkit, names in sorted(found.items())
    }


if __name__ == "__main__":
    found = sorted(wheel for folder in sys.argv[1:] for wheel in Path(folder).glob("*.whl"))
    OUT.write_text(
        re.sub(r"\n {3,}|\n {2}(?=\])", " ", json.dumps(extracted(found), indent=1)) + "\n", encoding="utf-8"
    )
