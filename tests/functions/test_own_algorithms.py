"""What an algorithm of the user returns is checked as rewards are: a mistake is reported at the line of the method, with the next step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from function_helpers import rollout_of, write
from scratch_registry import scratch
from wording import said

from fgrl.base.errors import UserCodeError
from fgrl.kinds.functions import checked_advantages, checked_credit, checked_loss, checked_state, written_at
from fgrl.registry import build, import_file
from fgrl.types import Advantages, Batch, Mean

OWN = '''import torch
from fgrl.components.algorithms.grpo import GRPO
from fgrl.registry import register

@register("own")
class Own(GRPO):
    """One of my own."""

    def advantages(self, rollout, rewards):
        pass

    def loss(self, model, batch):
        pass

    def token_credit(self, model, batch):
        pass

    @torch.no_grad()
    def state_dict(self):
        pass
'''
ADVANTAGES, LOSS, CREDIT, STATE = 9, 12, 15, 19
"""Lines of the methods."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    with scratch():
        import_file(write(tmp_path, OWN, "own.py"))
        yield build("online_algorithm", "own")


@pytest.fixture
def rollout() -> Any:
    return rollout_of(["a", "bird"])


def of(rollout: Any, **changes: Any) -> Advantages:
    return Advantages(**{"advantage": torch.zeros(rollout.mask.shape)} | changes)


MISTAKES = {
    "nothing": lambda _rollout: None,
    "a tensor": lambda rollout: torch.zeros(rollout.mask.shape),
    "one number for each response": lambda rollout: of(rollout, advantage=torch.zeros(len(rollout.mask), 1)),
    "returns of other rows": lambda rollout: of(rollout, returns=torch.zeros(9, rollout.mask.shape[1])),
    "a graph": lambda rollout: of(rollout, advantage=torch.zeros(rollout.mask.shape, requires_grad=True)),
    "keep of numbers": lambda rollout: of(rollout, keep=torch.ones(len(rollout.mask))),
    "trained of responses": lambda rollout: of(rollout, trained=torch.ones(9, 9, dtype=torch.bool)),
    "a wide column": lambda rollout: of(rollout, columns={"weight": torch.ones(9)}),
    "NaN": lambda rollout: of(rollout, advantage=torch.full(rollout.mask.shape, torch.nan)),
    "infinite returns": lambda rollout: of(rollout, returns=torch.full(rollout.mask.shape, torch.inf)),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_advantages_is_reported_at_its_line(mistake: str, own: Any, rollout: Any) -> None:
    make = MISTAKES[mistake]
    with pytest.raises(UserCodeError) as caught:
        checked_advantages(own, make(rollout), rollout)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"own.py:{ADVANTAGES}: advantages of the online_algorithm 'own' returned")
    said("run", f"advantages: {mistake}", "\n".join(lines[:1] + lines[2:]))
    assert len(lines) <= 5


def test_advantages_behind_a_response_do_not_count(own: Any, rollout: Any) -> None:
    assert not rollout.mask.all()
    behind = torch.where(rollout.mask, 0.0, torch.nan)
    checked_advantages(own, of(rollout, advantage=behind, columns={"weight": torch.ones(2)}), rollout)


WEIGHT = torch.ones(3, requires_grad=True)
WRONG_LOSSES = {
    "nothing": lambda: None,
    "no metrics": lambda: WEIGHT.sum(),
    "a number": lambda: (0.5, {}),
    "one loss for each row": lambda: (WEIGHT * 2, {}),
    "an integer": lambda: (torch.tensor(1), {}),
    "detached": lambda: (WEIGHT.sum().detach(), {}),
    "metrics of text": lambda: (WEIGHT.sum(), {"kl": "high"}),
    "a metric of several numbers": lambda: (WEIGHT.sum(), {"kl": torch.ones(2)}),
    "metrics in a list": lambda: (WEIGHT.sum(), [0.5]),
    "a metric without a name": lambda: (WEIGHT.sum(), {1: 0.5}),
}


@pytest.mark.parametrize("mistake", WRONG_LOSSES)
def test_a_mistake_in_a_loss_is_reported_at_its_line(mistake: str, own: Any) -> None:
    make = WRONG_LOSSES[mistake]
    with pytest.raises(UserCodeError) as caught:
        checked_loss(own, make())
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"own.py:{LOSS}: loss of the online_algorithm 'own' returned")
    said("run", f"loss: {mistake}", "\n".join(lines[:1] + lines[2:]))
    assert len(lines) <= 5


def test_a_loss_as_it_should_be(own: Any) -> None:
    metrics = {"kl": Mean(1.0, 2), "tokens": 3, "entropy": torch.tensor(0.5)}
    loss, given = checked_loss(own, (WEIGHT.sum(), metrics))
    assert (float(loss.detach()), given) == (3.0, metrics)
    with torch.no_grad():  # a measurement
        checked_loss(own, (WEIGHT.sum(), {}))


WRONG_CREDIT = {
    "a tensor": torch.zeros(2, 3),
    "a number": {"reward": 0.5},
    "one number per response": {"reward": torch.zeros(2)},
    "with a gradient": {"reward": torch.zeros(2, 3, requires_grad=True)},
}


@pytest.mark.parametrize("mistake", WRONG_CREDIT)
def test_a_mistake_in_a_credit_is_reported_as_the_users(mistake: str, own: Any) -> None:
    value = WRONG_CREDIT[mistake]
    mask = torch.ones(2, 3, dtype=torch.bool)
    batch = Batch(mask.long(), mask, mask.long(), mask, mask)
    with pytest.raises(UserCodeError) as caught:
        checked_credit(own, value, batch)
    assert str(caught.value).startswith(f"own.py:{CREDIT}: token_credit of the online_algorithm 'own' returned")
    said("run", f"token_credit: {mistake}", str(caught.value))
    assert checked_credit(own, {"reward": torch.zeros(2, 3)}, batch).keys() == {"reward"}


@pytest.mark.parametrize("state", [[torch.ones(1)], 0.5, {"best": object()}])
def test_a_mistake_in_a_state_is_reported_at_its_line(state: Any, own: Any) -> None:
    with pytest.raises(UserCodeError) as caught:
        checked_state(own, state)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"own.py:{STATE}: state_dict of the online_algorithm 'own' returned")
    assert lines[1].endswith("def state_dict(self):")
    assert checked_state(own, {"best": torch.ones(1)}).keys() == {"best"}


def test_a_method_is_named_where_the_user_wrote_it(own: Any) -> None:
    assert written_at(own, "loss") == f"own.py:{LOSS} (loss of the online_algorithm own)"
    assert written_at(own, "state_dict") == f"own.py:{STATE} (state_dict of the online_algorithm own)", (
        "below decorators"
    )
    assert written_at(own, "load_state_dict") == ""
    with pytest.raises(TypeError, match="expected Advantages"):
        checked_advantages(build("online_algorithm", "grpo"), None, rollout_of(["a"]))
