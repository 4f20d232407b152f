"""The alarm on stale weights of the real vLLM 0.32.0: `make evidence`. Needs its environment, see tests/serving/test_vllm_real.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from stub_engine import stage
from test_online import by_ids, fitted, module_of, reward_of

from fgrl.components.algorithms.grpo import GRPO
from fgrl.rollouts.serving import environment
from fgrl.rollouts.serving.broadcasts import BroadcastParcel
from fgrl.rollouts.serving.connection import Connection
from fgrl.training.alarms import Alarms


@pytest.mark.evidence
@pytest.mark.smollm2
@pytest.mark.parametrize("stale", [False, True])
def test_stale_weights_ring_where_version_and_checksum_do_not_tell(
    smollm2_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stale: bool
) -> None:
    """A training whose server reports the version of each transfer and, if `stale`, took the first weights alone."""
    found = environment.look()
    if found is None or not found.supported:
        pytest.skip(f"needs vllm: set {environment.VARIABLE}, or {environment.how_to_make()}")
    deliver, sent = BroadcastParcel.deliver_to_all, []

    def first_alone(self: BroadcastParcel, servers: Sequence[Connection], limit: float) -> dict[int, str]:
        sent.append(self.version)
        if len(sent) == 1 or not stale:
            return deliver(self, servers, limit)
        for server in servers:
            server.call("/update_weight_version", {"new_version": self.version}, limit=limit)
        return {}

    monkeypatch.setattr(BroadcastParcel, "deliver_to_all", first_alone)
    said: list[str] = []
    with stage(
        tmp_path / "serving", transfer="gloo", python=found.python, start_timeout=1500.0, max_tokens=512, checksum_every=0
    ) as opened:  # fmt: skip
        module = module_of(
            smollm2_dir, tmp_path / "policy", reward_of(by_ids), algorithm=GRPO(), engine=opened.engine, alarms=Alarms(),
            iterations=6, lr=3e-3, warmup=0.0, per_iteration=16, per_prompt=4, batch_size=16, micro_batch_size=16,
        )  # fmt: skip
        module.rounds.watch.say = said.append
        rows = fitted(module)
        module.rounds.drawer.close()
    print(f"stale={stale}: mismatch {[round(row['mismatch'], 4) for row in rows]} nats", flush=True)
    assert len(sent) == len(rows)
    assert rows[0]["mismatch"] < 1e-3
    assert any("alarm: mismatch is" in line for line in said) == stale
