"""torchrun's agent as a separate process: `python -m fgrl.training.agent PROCESSES ENDED WORD ...` runs Python with
these words in PROCESSES processes, which get their rank from torchrun's variables.

When one of them fails, the agent asks the others to stop, and kills those that do not stop within half a minute;
SIGTERM is passed on to all. It prints nothing: the file ENDED records how each process ended, and `fgrl run`, which has
started the agent, reports it. It opens no port; the processes find each other through a file
(`fgrl.training.launching`).
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fgrl.base import stops
from fgrl.base.errors import DONE, FAILED, INTERRUPTED
from fgrl.base.files import write_json

NO_PORT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def main(processes: str, ended: str, *words: str) -> int:
    """Return the exit code: INTERRUPTED after a signal, FAILED if a process has failed."""
    logging.disable()
    os.environ |= NO_PORT
    with TemporaryDirectory(prefix="fgrl-agent-") as own, stops.children_end_with_us(os.environ):
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=int(processes), run_id="stage", max_restarts=0, local_addr="localhost",
            rdzv_backend="c10d", rdzv_endpoint=f"{own}/store", rdzv_configs={"store_type": "file"}, logs_specs=DefaultLogsSpecs(own),
        )  # fmt: skip
        try:
            elastic_launch(config, sys.executable)(*words)
        except SignalException:
            return INTERRUPTED
        except ChildFailedError as failed:
            write_json(Path(ended), {str(rank): failure.exitcode for rank, failure in failed.failures.items()})
            return FAILED
    return DONE


if __name__ == "__main__":
    stops.end_with_parent()
    os._exit(main(*sys.argv[1:]))  # without the second in which Python takes torch apart
