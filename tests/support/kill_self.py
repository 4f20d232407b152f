"""Imported by a recipe: the process kills itself before or after it scores a rollout, and records what it scores.

`KILL_AT` is `before:N` or `after:N`, the number of the scoring in this process, from 0; `SCORED` is the file of the record.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from fgrl.training import online

WHEN, NUMBER = os.environ.get("KILL_AT", "never:0").split(":")
seen: list[int] = []
scored = online.OnlineRounds._scored


def recorded(self: Any, rollout: Any) -> Any:
    if len(seen) == int(NUMBER) and WHEN == "before":
        kill(rollout)
    rewards = scored(self, rollout)
    if len(seen) == int(NUMBER) and WHEN == "after":
        kill(rollout)
    note(rollout)
    return rewards


def note(rollout: Any) -> None:
    seen.append(len(seen))
    with open(os.environ["SCORED"], "a", encoding="utf-8") as file:  # noqa: PTH123
        ids = [row[mask].tolist() for row, mask in zip(rollout.response_ids, rollout.mask, strict=True)]
        file.write(json.dumps({"ids": ids, "versions": rollout.drawn_version.tolist()}) + "\n")


def kill(rollout: Any) -> None:
    note(rollout)
    os.kill(os.getpid(), signal.SIGKILL)


if online.OnlineRounds._scored.__name__ != "recorded":  # a file that a recipe imports runs again before each stage
    online.OnlineRounds._scored = recorded  # type: ignore[method-assign]
