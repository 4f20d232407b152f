"""Trackers of a recipe (`track`): destinations of a run's metrics besides its own logs. They cannot change a result, so
they do not count for keys.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from fgrl.base.errors import Requires, Unavailable
from fgrl.registry import Settings

WANDB_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_DISABLED")
WANDB_WITHOUT_KEY = ("offline", "disabled", "dryrun")
WANDB_SETTINGS = ("~/.config/wandb", "wandb")
"""Folders of W&B's own settings, which may switch it off or name another server."""
NO_WANDB_KEY = (
    "Weights & Biases has no key here: log in with `wandb login`, or set WANDB_API_KEY, or set WANDB_MODE=offline to keep the "
    "metrics in the folder of the run"
)


class TensorBoard(Settings):
    """Event files for TensorBoard (extra `tensorboard`); `tensorboard --logdir FOLDER` shows them."""

    folder: str | None = Field(None, min_length=1)
    """Folder of the files, which lie below it by recipe, run and stage; null: `tensorboard/` in the folder of the run."""

    def check_machine(self) -> None:
        Requires("tensorboard", "event files need the package tensorboard", extra="tensorboard").check()


class Wandb(Settings):
    """Weights & Biases: one W&B run for each run. `WANDB_MODE=offline` writes to the folder of the run only."""

    project: str = Field(min_length=1)
    """Name of the W&B project."""
    entity: str | None = None
    """User or team; null: W&B's default."""
    group: str | None = None
    """Group in which W&B shows the run."""
    tags: list[str] = []
    """Tags of the W&B run."""

    def check_machine(self) -> None:
        Requires("wandb", "logging to Weights & Biases needs the package wandb", extra="wandb").check()
        host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
        netrc = [Path(os.environ.get("NETRC") or Path.home() / name) for name in (".netrc", "_netrc")]
        if (
            not any(os.environ.get(name) for name in WANDB_KEYS)
            and os.environ.get("WANDB_MODE") not in WANDB_WITHOUT_KEY
            and not any(file.is_file() and host in file.read_text(errors="replace") for file in netrc)
            and not any(Path(folder, "settings").expanduser().is_file() for folder in WANDB_SETTINGS)
        ):
            raise Unavailable(NO_WANDB_KEY)


class MLflow(Settings):
    """MLflow (extra `mlflow`): one MLflow run for each run. MLflow's own variable `MLFLOW_TRACKING_URI` sets its
    destination.
    """

    experiment: str = Field(min_length=1)
    """Name of the experiment, which is created if it does not exist."""

    def check_machine(self) -> None:
        Requires("mlflow", "logging to MLflow needs the package mlflow", extra="mlflow").check()


Tracking = dict[str, Settings]
