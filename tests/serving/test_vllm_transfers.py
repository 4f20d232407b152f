"""Weights arrive, or the run says that they did not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from listening import LOOPBACK, listening
from model_helpers import LORA, stir, tiny
from safetensors.torch import load_file
from stub_engine import expected, requests, stage

from fgrl import models
from fgrl.base.errors import EngineFailed, Stopped, Unavailable, UsageError
from fgrl.kinds import ServerGone, ServerRefused
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.rollouts.serving import broadcasts, parcels, weights

FULL = ("files", "gloo")


def change(model: models.LanguageModel, seed: int) -> None:
    """A training step."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.01)


def policy(folder: Path, kind: str) -> models.LanguageModel:
    model = tiny(folder, trainable=True, lora=LORA) if kind != "full" else tiny(folder, trainable=True)
    if model.adapted:
        stir(model)
    return model


# -- what is sent --------------------------------------------------------------------------------------------------------


def test_full_weights_are_those_of_the_checkpoint_and_tied_ones_are_sent_once(tiny_model_dir: Path) -> None:
    sent = dict(weights.sent(tiny(tiny_model_dir), "float32"))
    wanted = load_file(tiny_model_dir / "model.safetensors")
    assert sent.keys() == wanted.keys()
    assert "lm_head.weight" not in sent
    assert all(torch.equal(sent[name], wanted[name]) for name in wanted)
    assert {tensor.dtype for _name, tensor in weights.sent(tiny(tiny_model_dir), "bfloat16")} == {torch.bfloat16}


def test_a_merged_adapter_is_that_of_peft(tiny_model_dir: Path) -> None:
    model = policy(tiny_model_dir, "lora")
    sent = dict(weights.sent(model, "float32"))
    below = {name: tensor.clone() for name, tensor in weights.sent(model, "float32", merge=False)}
    merged = model.net.merge_and_unload().state_dict()
    assert sent.keys() == below.keys()
    changed = [name for name in sent if not torch.equal(sent[name], below[name])]
    assert len(changed) == 14
    for name, tensor in sent.items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-6, atol=1e-7)


def test_a_sum_in_bfloat16_is_rounded_the_same_way_again_and_right_on_average(tiny_model_dir: Path) -> None:
    model = policy(tiny_model_dir, "lora")
    exact = dict(weights.sent(model, "float32"))
    name = next(name for name in exact if "q_proj" in name)
    assert torch.equal(
        dict(weights.sent(model, "bfloat16", seed=3))[name], dict(weights.sent(model, "bfloat16", seed=3))[name]
    )
    mean = torch.stack([dict(weights.sent(model, "bfloat16", seed=seed))[name].float() for seed in range(200)]).mean(0)
    nearest = exact[name].to(torch.bfloat16).float()
    assert (mean - exact[name]).abs().mean() < 0.25 * (nearest - exact[name]).abs().mean()


# -- what is compared ----------------------------------------------------------------------------------------------------


def part(tensor: torch.Tensor, rows: list[list[int]], columns: list[int] | None = None) -> dict[str, object]:
    own = torch.cat([tensor[first:last] for first, last in rows])
    own = own if columns is None else own[:, columns[0] : columns[1]]
    return {"digest": weights.digest(own), "rows": rows, "columns": columns}


def test_tensors_are_compared_over_all_workers() -> None:
    matrix, vector = torch.arange(24.0).view(6, 4), torch.arange(6.0)
    named = {"matrix": matrix, "vector": vector}
    by_rows = [{"matrix": part(matrix, [[0, 3]]), "vector": part(vector, [[0, 6]])},
               {"matrix": part(matrix, [[3, 6]]), "vector": part(vector, [[0, 6]])}]  # fmt: skip
    assert weights.compare(named.items(), by_rows) == []
    by_columns = [{"matrix": part(matrix, [[0, 6]], [0, 2])}, {"matrix": part(matrix, [[0, 6]], [2, 4])}]
    assert weights.compare({"matrix": matrix}.items(), by_columns) == []
    fused = [{"matrix": part(matrix, [[0, 1], [4, 5]])}, {"matrix": part(matrix, [[1, 4], [5, 6]])}]
    assert weights.compare({"matrix": matrix}.items(), fused) == []
    assert weights.compare(named.items(), by_rows[:1]) == ["matrix (the server has 12 of 24 numbers)"]
    assert weights.compare(named.items(), [{"matrix": None, "vector": part(vector, [[0, 6]])}]) == [
        "matrix (the server does not have it)"
    ]
    for place in range(24):  # each number counts
        other = matrix.clone()
        other.view(-1)[place] += 1
        assert weights.compare({"matrix": other}.items(), by_rows[:0] or [{"matrix": part(matrix, [[0, 6]])}]) == [
            "matrix (another content)"
        ]


# -- bringing them -------------------------------------------------------------------------------------------------------


def test_other_users_and_machines_do_not_reach_a_server_or_a_transfer(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[str] = []
    broadcast = broadcasts.BroadcastParcel.broadcast

    def watched(self: broadcasts.BroadcastParcel, group: object, counts: list[int]) -> Iterator[str]:
        here.extend(listening())
        return broadcast(self, group, counts)

    monkeypatch.setattr(broadcasts.BroadcastParcel, "broadcast", watched)
    before = listening()
    model = policy(tiny_model_dir, "full")
    with stage(tmp_path, transfer="gloo") as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        (slot,) = running.slots()
        socket = Path(slot.address.removeprefix("unix:"))
        assert socket.is_socket()
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        (server,) = Path(f"/proc/{slot.process}/task/{slot.process}/children").read_text().split()
        assert set(listening(server)) <= {LOOPBACK}, "gloo's own socket"
    assert here
    assert set(here) - set(before) <= {LOOPBACK}
    assert not socket.parent.exists()


@pytest.mark.parametrize(("backend", "device"), [("gloo", "cpu"), ("nccl", "meta")])
def test_weights_that_are_kept_on_the_cpu_are_sent_from_the_device_of_the_backend(
    backend: str, device: str, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasts, "fingerprint", lambda _flat: "")
    sent: list[str] = []

    class Group:
        def broadcast(self, tensor: torch.Tensor, _root: int) -> Group:
            sent.append(tensor.device.type)
            return self

        def wait(self) -> None: ...

    kept = parcels.of_model(policy(tiny_model_dir, "full"), "fgrl-x-3", "float32", keep=True)
    assert {tensor.device.type for _name, tensor in kept.tensors()} == {"cpu"}
    parcel = broadcasts.BroadcastParcel("fgrl-x-3", kept, backend, torch.device(device), broadcasts.Broadcasts())
    assert len(list(parcel.broadcast(Group(), [1, len(kept.shapes) - 1]))) == 2
    assert sent == [device, device]


@pytest.mark.parametrize(
    ("transfer", "kind"), [("adapter", "lora"), *((way, kind) for way in FULL for kind in ("full", "lora"))]
)
def test_each_version_arrives(tiny_model_dir: Path, tmp_path: Path, transfer: str, kind: str) -> None:
    model = policy(tiny_model_dir, kind)
    names = set()
    with (
        stage(tmp_path, transfer=transfer, checksum_every=1, copies=2) as running,
        running.engine.open(model) as drawer,
    ):
        for version in range(6):
            change(model, version)
            drawer.take(model, version)
            assert drawer.version == version
            names.add(drawer._parcel.version)
            slots = running.slots()
            assert {slot.version for slot in slots} == {drawer._parcel.version}
            assert all(drawer._parcel.arrived(slot.connection, 10) == slot.version for slot in slots)
            assert drawer._parcel.differing(slots[0].connection, 10) == []
        drawer.take(model, 5)  # it is there
        assert len(names) == 6
        asked = requests(6)
        assert [(one.token_ids, one.version) for one in drawer.draw(asked)] == [
            (expected(each)[0], 5) for each in asked
        ]
        kept = list((running.servers().folder / ("adapters" if transfer == "adapter" else "weights")).glob("*"))
        assert len(kept) == (0 if transfer == "gloo" else 1), "older versions are deleted"


@pytest.mark.parametrize("transfer", ["adapter", *FULL])
def test_a_skipped_transfer_is_noticed_by_the_version(tiny_model_dir: Path, tmp_path: Path, transfer: str) -> None:
    route = {"adapter": "load_lora_adapter", "files": "fgrl_load", "gloo": "finish_weight_update"}[transfer]
    model = policy(tiny_model_dir, "lora")
    with stage(tmp_path, transfer=transfer, checksum_every=0) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        change(model, 0)
        running.order(**{route: ["skip"]})
        with pytest.raises(Stopped, match=r"reports the weights .*the transfer has not arrived"):
            drawer.take(model, 1)


def test_a_skipped_transfer_is_noticed_by_the_checksum(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = policy(tiny_model_dir, "lora")
    with stage(tmp_path, transfer="files", checksum_every=1) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        change(model, 0)
        running.order(fgrl_load=["lie"])
        with pytest.raises(
            Stopped, match=r"14 tensors differ, the first of them model.layers.0.\S+ \(another content\)"
        ):
            drawer.take(model, 1)


@pytest.mark.parametrize("fault", ["bad digest", "a part", "lacks one"])
@pytest.mark.parametrize("transfer", ["adapter", *FULL])
def test_a_wrong_tensor_is_named(tiny_model_dir: Path, tmp_path: Path, transfer: str, fault: str) -> None:
    model = policy(tiny_model_dir, "lora")
    with stage(tmp_path, transfer=transfer, checksum_every=1) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        change(model, 0)
        running.order(fgrl_digests=[fault])
        with pytest.raises(Stopped, match=r"1 tensors differ, the first of them model.embed_tokens.weight \("):
            drawer.take(model, 1)


def test_a_corrupted_tensor_is_noticed_at_the_next_checksum(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = policy(tiny_model_dir, "full")
    with stage(tmp_path, transfer="gloo", checksum_every=2) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        running.order(update_weights=["spoil", "spoil"])
        drawer.take(model, 1)  # between two checksums
        with pytest.raises(
            Stopped, match=r"1 tensors differ, the first of them model.embed_tokens.weight \(another content\)"
        ):
            drawer.take(model, 2)


@pytest.mark.parametrize(
    ("transfer", "fault"),
    [
        ("adapter", "die"),
        ("files", "status 500"),
        ("files", "hang"),
        ("gloo", "status 500"),
        ("gloo", "cut"),
        ("gloo", "die"),
    ],
)
def test_a_transfer_that_breaks_off_is_made_again(
    tiny_model_dir: Path, tmp_path: Path, transfer: str, fault: str
) -> None:
    route = {"adapter": "load_lora_adapter", "files": "fgrl_load", "gloo": "update_weights"}[transfer]
    model = policy(tiny_model_dir, "lora")
    limit = 10.0 if fault == "hang" else 300.0
    with (
        stage(tmp_path, transfer=transfer, checksum_every=1, transfer_timeout=limit) as running,
        running.engine.open(model) as drawer,
    ):
        drawer.take(model, 0)
        change(model, 0)
        running.order(**{route: [fault]})
        drawer.take(model, 1)
        assert running.slots()[0].generation == 1
        assert "another one is started" in running.said.getvalue()
        asked = requests(3)
        assert [one.token_ids for one in drawer.draw(asked)] == [expected(each)[0] for each in asked]


def test_a_server_that_never_takes_the_weights_ends_the_run(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAULTS", json.dumps({"load_lora_adapter": ["always", "status 500"]}))
    model = policy(tiny_model_dir, "lora")
    with (
        stage(tmp_path, transfer="adapter") as running,
        running.engine.open(model) as drawer,
        pytest.raises(
            EngineFailed, match=r"the weights do not reach server 0: /v1/load_lora_adapter: status 500(.|\n)*stub:"
        ),
    ):
        drawer.take(model, 0)


def test_somebody_else_who_draws_is_noticed(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = policy(tiny_model_dir, "full")
    with stage(tmp_path, transfer="files") as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        running.order(reset_prefix_cache=["busy"])
        drawer.take(model, 1)
        assert "somebody else draws from the server" in running.said.getvalue()


# -- several models ------------------------------------------------------------------------------------------------------


def test_drawers_of_one_stage_share_servers_and_never_draw_from_each_others_weights(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    model, other = policy(tiny_model_dir, "full"), policy(tiny_model_dir, "full")
    change(other, 5)
    with stage(tmp_path, transfer="files", checksum_every=1) as running, running.engine.open(model) as drawer:
        drawer.take(model, 4)
        first = running.slots()
        with running.engine.open(other) as second:
            second.draw(requests(2))  # nobody has called `take`: the model as it is
            assert [slot.process for slot in running.slots()] == [slot.process for slot in first]
            assert second._parcel.differing(first[0].connection, 10) == []
            assert drawer._parcel.differing(first[0].connection, 10) != []
        assert {one.version for one in drawer.draw(requests(2))} == {4}
        assert drawer._parcel.differing(first[0].connection, 10) == []


def test_two_drawers_with_the_same_adapter_do_not_take_it_from_each_other(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = policy(tiny_model_dir, "lora")
    with stage(tmp_path, transfer="adapter") as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        with running.engine.open(model) as evaluation:
            evaluation.take(model, 0)
            assert evaluation._parcel.name == drawer._parcel.name
        assert len(drawer.draw(requests(2))) == 2
        assert running.slots()[0].generation == 0


# -- what cannot be sent -------------------------------------------------------------------------------------------------


def test_full_weights_by_adapter_are_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    with (
        stage(tmp_path, transfer="adapter") as running,
        pytest.raises(UsageError, match=r"this model has none.* use gloo or files"),
    ):
        running.engine.open(policy(tiny_model_dir, "full"))


def test_an_adapter_on_an_adapter_is_refused_by_adapter_and_merged_by_the_others(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    below = policy(tiny_model_dir, "lora")
    models.save(below, tmp_path / "below", {})
    model = models.load(ModelSpec(base=str(tmp_path / "below"), lora=LoraSpec(r=4)), trainable=True)
    stir(model)
    with (
        stage(tmp_path / "stage", transfer="adapter") as running,
        pytest.raises(UsageError, match="2 adapters on top of each other"),
    ):
        running.engine.open(model)
    with stage(tmp_path / "other", checksum_every=1) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        assert type(drawer.transfer).__name__ == "Gloo"


def test_what_needs_a_gpu_says_so(tiny_model_dir: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    with (
        stage(tmp_path, transfer="nccl") as running,
        pytest.raises(Unavailable, match="copies between GPUs, and none is visible"),
    ):
        running.engine.open(policy(tiny_model_dir, "full"))


def test_the_group_lasts_and_all_servers_get_one_broadcast(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    broadcast = broadcasts.BroadcastParcel.broadcast

    def counted(self: broadcasts.BroadcastParcel, group: object, counts: list[int]) -> Iterator[str]:
        sent.append(id(group))
        return broadcast(self, group, counts)

    monkeypatch.setattr(broadcasts.BroadcastParcel, "broadcast", counted)
    monkeypatch.setattr(broadcasts, "BUCKET", 1000)
    model = policy(tiny_model_dir, "full")
    with (
        stage(tmp_path, transfer="gloo", checksum_every=1, copies=2) as running,
        running.engine.open(model) as drawer,
    ):
        for version in range(3):
            change(model, version)
            drawer.take(model, version)
        assert len(sent) == 3, "once for both servers"
        assert len(set(sent)) == 1, "through one group"
        running.order(update_weights=["die"])  # of the first server
        change(model, 3)
        drawer.take(model, 3)
        assert sorted(slot.generation for slot in running.slots()) == [0, 1], "the other one is not replaced"
        assert all(drawer._parcel.differing(slot.connection, 10) == [] for slot in running.slots())


def test_bytes_that_change_on_the_way_end_the_run_at_once(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = policy(tiny_model_dir, "full")
    with stage(tmp_path, transfer="gloo", checksum_every=0) as running, running.engine.open(model) as drawer:
        drawer.take(model, 0)
        running.order(update_weights=["spoil on the way"])
        with pytest.raises(Stopped, match="has received other bytes than fgrl-"):
            drawer.take(model, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fingerprint_is_a_sum_of_bits_by_place_and_sees_every_change(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasts, "PART", 16)
    flat = torch.randn(50, generator=torch.Generator().manual_seed(1)).to(dtype)
    bits = flat.view(torch.int32 if dtype == torch.float32 else torch.int16).tolist()
    wanted = sum(number * (2 * place + 1) for place, number in enumerate(bits)) % 2**64
    assert broadcasts.fingerprint(flat) == f"{wanted:016x}"
    for place in range(len(flat)):
        other = flat.clone()
        other[place] = -other[place]
        assert broadcasts.fingerprint(other) != f"{wanted:016x}"
    assert broadcasts.fingerprint(flat.flip(0)) != f"{wanted:016x}"


def test_buckets_hold_all_tensors_in_their_order() -> None:
    assert broadcasts.bucketed([3, 4, 10, 1, 1, 1], 5) == [2, 1, 3]
    assert broadcasts.bucketed([3, 4, 10], 1) == [1, 1, 1]
    assert broadcasts.bucketed([3, 4, 10], 100) == [3]
    assert broadcasts.bucketed([], 5) == []


def test_who_broke_off_is_told_from_who_waited() -> None:
    def gone() -> None:
        raise ServerGone("no answer")

    def refusing() -> None:
        raise ServerRefused("status 500")

    def broken() -> None:
        raise RuntimeError("Connection closed by peer")

    ok = [lambda: None] * 3
    assert broadcasts.beside(ok[0], ok, 5) == {}
    assert broadcasts.beside(broken, [ok[0], gone, refusing], 5) == {0: "", 1: "no answer", 2: ""}
    assert broadcasts.beside(broken, [ok[0], refusing, ok[0]], 5) == {0: "", 1: "status 500", 2: ""}
    every = broadcasts.beside(broken, ok, 5)
    assert set(every.values()) == {"the transfer broke off: Connection closed by peer"}
    with pytest.raises(ZeroDivisionError):
        broadcasts.beside(lambda: 1 / 0, ok, 5)
    ended = threading.Event()
    try:
        late = broadcasts.beside(ok[0], [ok[0], ended.wait], -broadcasts.GRACE)
    finally:
        ended.set()
    assert late == {0: "", 1: "no end within -5 s"}
