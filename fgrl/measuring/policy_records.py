"""Record of the model that drew answers whose rewards were computed with that model (rewards that need "policy").

In the product of an evaluation:

    answered_by.json    identification of the weights of each answering model, by its name in the recipe

While the evaluation runs, `answers-NAME.answered_by.json` beside the answers of one model (a file, and a folder of its
parts) has the same content, and is compared before answers of a killed process are used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fgrl.base.errors import PolicyNotLent
from fgrl.base.files import write_json
from fgrl.kinds import Run
from fgrl.kinds.specs import ModelSpec
from fgrl.rollouts import passes

FILE = "answered_by.json"


def checked(run: Run, name: str, spec: ModelSpec, part: Path) -> str:
    """Return the fingerprint of the weights of `spec`, whose answers are or will be in the file `part`.

    Raises `PolicyNotLent` if the file or its parts exist with another model's answers.
    """
    identity = passes.identity(spec, run)
    if part.exists() or part.with_suffix("").exists():
        file = _record_of(part)
        recorded = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if recorded != identity:
            raise PolicyNotLent(
                f"{part}: these answers were credited with another model ({recorded or 'not recorded'}) than {name}, "
                f"{spec.base!r} ({identity}): delete the file, and run again"
            )
    return identity


def record(run: Run, name: str, spec: ModelSpec, identity: str, model: Any, part: Path) -> None:
    """Record beside `part` the weights of `model`, which draws the answers, and which the rewards use.

    identity: result of `checked` for `spec`. Raises `PolicyNotLent` if `model` has other weights.
    """
    answering = identity if model.spec == spec else passes.identity(model.spec, run)
    if answering != identity:
        raise PolicyNotLent(
            f"{name}: the recipe names {spec.base!r} ({identity}), and the model that answers is {model.spec.base!r} ({answering})"
        )
    if run.rank == 0:
        write_json(_record_of(part), answering)


def _record_of(part: Path) -> Path:
    return part.with_suffix(f".{FILE}")
