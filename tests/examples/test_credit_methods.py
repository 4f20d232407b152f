"""The credit-assignment methods of examples/credit: their numbers against derivations that do not use fgrl's passes, and their recipes."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from credit_training import FOLDER, METHODS, OF_PAIRS, overrides_of, pairs_file, teachers
from pydantic import PrivateAttr
from scratch_registry import scratch_imports
from tiny_recipe import weights
from training_helpers import a_run, distance, step_gradient, tiny
from typer.testing import CliRunner

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.cli import app
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.engines.hf import HF
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.recipe import load
from fgrl.kinds import Reward, auxiliaries
from fgrl.kinds.specs import Sampling
from fgrl.registry import Problems, build, import_file
from fgrl.rollouts.policies import LentPolicy
from fgrl.training.auxiliaries import Loaded, columns
from fgrl.training.auxiliaries import loss as auxiliary_loss
from fgrl.training.steps import Step, StepLoader
from fgrl.training.units import EncodedUnits, RolloutUnits
from fgrl.types import Rewards, Rollout, Sample, per_token

PROMPTS = [Sample(id=str(i), prompt=f"Name the {word}.", reference=[word]) for i, word in enumerate(["sea", "lamp"])]


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, ModuleType]]:
    """The methods' modules, imported as a recipe imports them."""
    with scratch_imports():
        yield {path.stem: import_file(path) for path in sorted(FOLDER.glob("*.py"))}


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


class Even(Reward):
    """1 for a response whose last token has an even id; it reads nothing but ids."""

    def score(self, rollout: Rollout) -> Rewards:
        last = rollout.response_ids.gather(1, rollout.mask.sum(1, keepdim=True) - 1)[:, 0]
        return Rewards((last % 2 == 0).float(), torch.zeros(rollout.mask.shape), rollout.mask)


class Prepared(Even):
    """`Even`, which knows whether it was prepared."""

    _ready: bool = PrivateAttr(False)

    def setup(self, run: Any) -> None:
        self._ready = True


def lent_and_drawn(
    model: Any, tokens: int, needs: frozenset[str], temperature: float = 0.8
) -> tuple[LentPolicy, Rollout]:
    sampling = Sampling(max_new_tokens=tokens, temperature=temperature)
    lent = LentPolicy(model, HF().open(model), sampling, seed=5, name="policy", micro_batch_size=3)
    drawn = rollouts.collect(
        model, model, PROMPTS, sampling, HF().open(model), needs, per_prompt=2, seed=5, lent_policy=lent
    )
    return lent, drawn


def ids_of(rollout: Any, row: int) -> tuple[list[int], list[int]]:
    return rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist(), rollout.response_ids[row][
        rollout.mask[row]
    ].tolist()


def logprobs(model: Any, ids: list[int], temperature: float) -> torch.Tensor:
    """[len - 1, V], of the transformers model alone."""
    return torch.log_softmax(model.net(torch.tensor([ids])).logits[0, :-1].float() / temperature, dim=1)


def answer_logp(model: Any, before: list[int], answer: list[int], temperature: float) -> float:
    rows = logprobs(model, before + answer, temperature)[len(before) - 1 :]
    return float(rows[range(len(answer)), answer].mean())


@torch.no_grad()
def test_counterfactual_importance_is_the_drop_of_the_answer(files: dict[str, ModuleType], model: Any) -> None:
    cut = {"name": "ngram", "n": 3}
    from fgrl.kinds import Segmenter

    reward = files["counterfactual"].CounterfactualImportance(reward=Even(), segmenter=build(Segmenter, cut), boost=2.0)
    assert reward.least_drop == 0.01
    lent, rollout = lent_and_drawn(model, 7, reward.needs())
    placeholder = model.tokenizer(" ...", add_special_tokens=False).input_ids[0]
    with lent.lend():
        largest = reward.score(rollout).columns["drop"].amax(dim=1)
        reward.least_drop = float(
            largest.clamp(min=0).sort().values[1:3].mean()
        )  # some responses are below it, some above
        columns = reward.score(rollout).columns
    assert 0 < int((largest < reward.least_drop).sum()) < 4
    encode = lambda text: model.tokenizer(text, add_special_tokens=False).input_ids  # noqa: E731
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        said = [token for token in response if token not in model.eos_ids]
        between, answer = encode("\nThe answer is"), encode(f" {PROMPTS[row // 2].reference[0]}")
        whole = answer_logp(model, prompt + said + between, answer, 0.8)
        drops = [0.0] * len(response)
        for start in range(0, len(said), 3):
            places = range(start, min(start + 3, len(said)))
            masked = [placeholder if place in places else token for place, token in enumerate(said)]
            for place in places:
                drops[place] = whole - answer_logp(model, prompt + masked + between, answer, 0.8)
        torch.testing.assert_close(columns["drop"][row, : len(response)], torch.tensor(drops), atol=2e-4, rtol=1e-3)
        importance = 2.0 if max(drops) >= reward.least_drop else 0.0
        raw = [1.0 + importance * max(0.0, drop) / max(1e-6, *drops) for drop in drops]
        expected = torch.tensor(raw) * len(raw) / sum(raw)
        torch.testing.assert_close(columns["weight"][row, : len(response)], expected, atol=1e-3, rtol=1e-2)


def test_the_influence_is_gradient_times_embedding(files: dict[str, ModuleType], model: Any) -> None:
    reward = files["oar_g"].OutcomeGradient(reward=Even(), quantile=0.5, boost=1.0)
    lent, rollout = lent_and_drawn(model, 7, reward.needs())
    with torch.no_grad(), lent.lend():
        columns = reward.score(rollout).columns
    encode = lambda text: model.tokenizer(text, add_special_tokens=False).input_ids  # noqa: E731
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        said = [token for token in response if token not in model.eos_ids]
        between, answer = encode("\nThe answer is"), encode(f" {PROMPTS[row // 2].reference[0]}")
        inputs = model.transformer.get_input_embeddings()(torch.tensor([prompt + said + between + answer])).detach()
        inputs.requires_grad_()
        logits = model.net(inputs_embeds=inputs).logits[0, -len(answer) - 1 : -1] / 0.8
        torch.log_softmax(logits, 1)[range(len(answer)), answer].mean().backward()
        influence = (inputs.grad * inputs).sum(2).abs()[0, len(prompt) : len(prompt) + len(said)].detach()
        torch.testing.assert_close(columns["influence"][row, : len(said)], influence, atol=1e-5, rtol=1e-3)
        # the gate, in plain numbers
        scaled = [math.log1p(value) for value in influence.tolist()]
        low, high = min(scaled), max(scaled)
        scaled = [(value - low) / (high - low) for value in scaled]
        cut = float(torch.tensor(scaled).quantile(0.5))
        raw = [max(0.1, value / cut) if value < cut else 1 + (value - cut) / (1 - cut) for value in scaled]
        expected = [value * len(raw) / sum(raw) for value in raw]
        torch.testing.assert_close(columns["weight"][row, : len(said)], torch.tensor(expected), atol=2e-3, rtol=1e-2)


@torch.no_grad()
def test_values_are_those_of_the_state(files: dict[str, ModuleType], model: Any) -> None:
    """One token before the limit the value of a state is a sum over the vocabulary, and what is drawn comes near it."""
    from fgrl.kinds import Segmenter

    k = 300
    reward = files["vine"].Vine(reward=Even(), segmenter=build(Segmenter, "token"), k=k)
    lent, rollout = lent_and_drawn(model, 2, reward.needs())
    with lent.lend():
        rewards = reward.score(rollout)
    value, token = rewards.columns["value"], rewards.token
    compared = 0
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        # the advantages of a response add up to its reward minus the value of its prompt
        assert float(token[row].sum()) == pytest.approx(float(rewards.response[row] - value[row, 0]), abs=1e-6)
        if len(response) == 2 and response[1] not in model.eos_ids:
            distribution = logprobs(model, [*prompt, response[0], 0], 0.8)[-1].exp()
            exact = float(distribution[0::2].sum())
            assert abs(float(value[row, 1]) - exact) < 4 * math.sqrt(exact * (1 - exact) / k) + 1e-3
            assert float(token[row, 1]) == pytest.approx(float(rewards.response[row] - value[row, 1]), abs=1e-6)
            compared += 1
    assert compared
    # responses to one prompt share the values of the states that they have in common
    states = {
        (row // 2, *ids_of(rollout, row)[1][:place])
        for row in range(4)
        for place in range(int(rollout.mask[row].sum()))
    }
    assert lent.use.continuations == len(states) * k
    assert float(value[0, 0]) == float(value[1, 0])
    assert float(value[2, 0]) == float(value[3, 0])


@torch.no_grad()
def test_states_are_valued_before_uncertain_tokens(files: dict[str, ModuleType], model: Any) -> None:
    """Steps by the reference's entropy, which the wrapper asks for because its segmenter does."""
    from fgrl.kinds import Segmenter

    _lent, drawn = lent_and_drawn(model, 8, frozenset(), temperature=1.0)
    entropies = []
    for row in range(4):
        prompt, response = ids_of(drawn, row)
        chances = logprobs(model, prompt + response, 1.0)[len(prompt) - 1 :]
        entropies.append([-float((each.exp() * each).sum()) for each in chances])
    every = sorted(value for values in entropies for value in values)
    cutoff = every[len(every) // 2] + 1e-4
    cut = build(Segmenter, {"name": "entropy", "cutoff": cutoff})
    vine = files["vine"].Vine(reward=Even(), segmenter=cut, k=1)
    assert vine.needs() == {"policy", "ref_entropy"}
    assert "ref_entropy" in files["counterfactual"].CounterfactualImportance(reward=Even(), segmenter=cut).needs()
    lent, rollout = lent_and_drawn(model, 8, vine.needs(), temperature=1.0)
    with lent.lend():
        steps = vine.score(rollout).segment_ids
    for row, values in enumerate(entropies):
        _prompt, response = ids_of(rollout, row)
        starts = [place for place, value in enumerate(values) if place == 0 or value > cutoff]
        starts = [place for place in starts if response[place] not in model.eos_ids or place == 0]
        expected = [sum(start <= place for start in starts) - 1 for place in range(len(response))]
        assert steps[row][: len(response)].tolist() == expected


@torch.no_grad()
def test_the_most_uncertain_tokens_are_trained_on(files: dict[str, ModuleType], model: Any) -> None:
    algorithm = files["top_entropy"].TopEntropyGRPO(share=0.25)
    assert algorithm.needs() == GRPO().needs() | {"entropy"}
    _lent, rollout = lent_and_drawn(model, 8, algorithm.needs())
    entropies = {}
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        for place, distribution in enumerate(logprobs(model, prompt + response, 0.8)[len(prompt) - 1 :]):
            entropies[row, place] = -float((distribution.exp() * distribution).sum())
    chosen = sorted(entropies, key=entropies.__getitem__)[-max(1, round(len(entropies) / 4)) :]
    rewards = Rewards(torch.tensor([1.0, 0, 1, 0]), torch.zeros(rollout.mask.shape), rollout.mask)
    assert algorithm.aggregate == "token_mean"
    trained = algorithm.advantages(rollout, rewards).trained
    assert sorted(map(tuple, trained.nonzero().tolist())) == sorted(chosen)
    # what is equally uncertain up to rounding is trained on together, whatever the micro-batches
    tied = torch.where(rollout.mask, 1.0, 0.0)
    tied[:, 0] = 2.0 + torch.tensor([0.0, 1e-6, -1e-6, 3e-7])
    algorithm.share = 2 / int(rollout.mask.sum())
    trained = algorithm.advantages(replace(rollout, entropy=tied), rewards).trained
    assert sorted(map(tuple, trained.nonzero().tolist())) == [(row, 0) for row in range(4)]


@torch.no_grad()
def test_missing_and_long_references_are_refused(files: dict[str, ModuleType], model: Any) -> None:
    reward = files["oar_g"].OutcomeGradient(reward=Even())
    lent, rollout = lent_and_drawn(model, 5, reward.needs())
    rollout.samples[0] = Sample(id="0", prompt="Name it.", reference=[])
    with lent.lend(), pytest.raises(DataError, match="prompt 0 has no reference"):
        reward.score(rollout)
    rollout.samples[0] = Sample(id="0", prompt="Name it.", reference=["sea " * 80])
    with (
        lent.lend(),
        pytest.raises(DataError, match=r"prompt 0: its reference has .* tokens, and at most 64 are measured"),
    ):
        reward.score(rollout)


@torch.no_grad()
def test_a_model_prefers_the_sentence_that_it_finds_more_probable(files: dict[str, ModuleType], model: Any) -> None:
    """On held-out questions, as `weighted_dpo.yaml` measures it: the accuracy and the margin of pairs."""
    lent, rollout = lent_and_drawn(model, 3, frozenset({"policy"}))
    for sample, word in zip(rollout.samples, ("hot", "hot", "slow", "slow"), strict=True):
        sample.prompt = f'The opposite of "{word}"?'
    nats, share = (files["prefers_answer"].PrefersAnswer(measure=measure) for measure in ("nats", "share"))
    with lent.lend():
        margins, shares = nats.score(rollout).response, share.score(rollout).response
    for row, word in enumerate(("hot", "hot", "slow", "slow")):
        prompt, _response = ids_of(rollout, row)
        logp = []
        for last in (PROMPTS[row // 2].reference[0], word):
            ids = model.tokenizer(f'The opposite of "{word}" is {last}.', add_special_tokens=False).input_ids
            ids.append(model.tokenizer.eos_token_id)
            rows = logprobs(model, prompt + ids, 0.8)[len(prompt) - 1 :]
            logp.append(float(rows[range(len(ids)), ids].sum()))
        assert float(margins[row]) == pytest.approx(logp[0] - logp[1], abs=2e-4)
        assert float(shares[row]) == float(logp[0] > logp[1])
    rollout.samples[0] = Sample(id="0", prompt="No word is quoted here.", reference=["sea"])
    with lent.lend(), pytest.raises(DataError, match="prompt 0: wants a question with a quoted word, and a reference"):
        share.score(rollout)


def moved(tiny_model_dir: Path, scale: float = 0.2) -> Any:
    """A model with an adapter that is not zero any more."""
    model = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, scale, generator=torch.Generator().manual_seed(len(name)))
    return model


def prime_rollout(files: dict[str, ModuleType], model: Any, prm: Any) -> tuple[Any, Rollout, dict[str, Loaded]]:
    """Responses with the columns of a process reward model."""
    algorithm = files["prime"].Prime(beta=0.3, gamma=0.9)
    _lent, rollout = lent_and_drawn(model, 7, algorithm.needs())
    loaded = {name: Loaded(declared, prm.spec, prm, None) for name, declared in auxiliaries([algorithm]).items()}
    rollout.columns = columns(rollout, loaded, micro_batch_size=3)
    return algorithm, rollout, loaded


def test_prime_is_the_equations_of_the_paper(files: dict[str, ModuleType], model: Any, tiny_model_dir: Path) -> None:
    prm = moved(tiny_model_dir)
    algorithm, rollout, _loaded = prime_rollout(files, model, prm)
    outcome = torch.tensor([1.0, 0.0, 0.5, 0.25])
    rewards = Rewards(outcome, torch.zeros(rollout.mask.shape), rollout.mask)
    advantage = algorithm.advantages(rollout, rewards).advantage.numpy()
    process = []
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        places = range(len(prompt) - 1, len(prompt) + len(response) - 1)
        with torch.no_grad():
            own = logprobs(prm, prompt + response, 0.8).numpy()[places, response]
            with prm.adapter_off():
                reference = logprobs(prm, prompt + response, 0.8).numpy()[places, response]
        process.append(0.3 * (own - reference).astype(np.float64))
        assert np.abs(process[row]).max() > 1e-3
    for row, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        better = float(outcome[row] - outcome[other])
        for t in range(len(process[row])):
            to_come = sum(
                0.9 ** (s - t) * (process[row][s] - process[other].mean()) for s in range(t, len(process[row]))
            )
            assert advantage[row, t] == pytest.approx(to_come + better, abs=2e-5)
    assert not advantage[~rollout.mask.numpy()].any()


def test_the_model_of_prime_learns_the_outcome_under_any_micro_batches(
    files: dict[str, ModuleType], model: Any, tiny_model_dir: Path
) -> None:
    prm = moved(tiny_model_dir)
    algorithm, rollout, loaded = prime_rollout(files, model, prm)
    outcome = torch.tensor([1.0, 0.0, 0.5, 0.25])
    rewards = Rewards(outcome, torch.zeros(rollout.mask.shape), rollout.mask)
    units = RolloutUnits(rollout, rewards, algorithm.advantages(rollout, rewards), pad_id=model.pad_id)

    def gradient(pieces: int) -> tuple[float, dict[str, torch.Tensor]]:
        batches = list(StepLoader(units, [Step([0, 1, 2, 3])], micro_batches=pieces, temperature=0.8))
        return step_gradient(prm, lambda batch: auxiliary_loss(loaded, batch)[0], batches)  # type: ignore[arg-type, return-value]

    whole, gradients = gradient(1)
    # the cross-entropy of the outcome and sigmoid(sum of process rewards), from the transformers model
    prm.zero_grad()
    losses = []
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        places = list(range(len(prompt) - 1, len(prompt) + len(response) - 1))
        own = logprobs(prm, prompt + response, 0.8)[places, response]
        with torch.no_grad(), prm.adapter_off():
            reference = logprobs(prm, prompt + response, 0.8)[places, response]
        right = torch.sigmoid(0.3 * (own - reference).sum())
        losses.append(-outcome[row] * right.log() - (1 - outcome[row]) * (1 - right).log())
    loss = torch.stack(losses).mean()
    loss.backward()
    expected = {name: p.grad.clone() for name, p in prm.named_parameters() if p.grad is not None}
    assert whole == pytest.approx(float(loss.detach()), rel=1e-5)
    assert distance(expected, gradients) < 1e-4
    for pieces in (2, 4):
        cut, of_pieces = gradient(pieces)
        assert cut == pytest.approx(whole, rel=1e-5)
        assert distance(gradients, of_pieces) < 1e-4


def test_prime_wants_outcomes_from_0_to_1(files: dict[str, ModuleType], model: Any, tiny_model_dir: Path) -> None:
    algorithm, rollout, _loaded = prime_rollout(files, model, moved(tiny_model_dir))
    rewards = Rewards(torch.tensor([1.0, -1.0, 0.0, 1.0]), torch.zeros(rollout.mask.shape), rollout.mask)
    with pytest.raises(DataError, match="rewards from -1 to 1 are no labels"):
        algorithm.advantages(rollout, rewards)


def test_the_process_reward_model_is_in_the_product_and_another_stage_names_it(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    overrides = [*overrides_of("prime", tmp_path, tiny_model_dir), "stages.policy.train.iterations=1"]
    again = (
        "stages.again={name: rl, prompts: '${vars.questions}', model: {base: '${out:policy}', auxiliary: prm, lora: {r: 4}}, reward: says_answer, "
        "algorithm: grpo, rollout: '${stages.policy.rollout}', train: '${stages.policy.train}'}"
    )
    with scratch_imports():
        loaded = load(FOLDER / "prime.yaml", [*overrides, again])
        estimate = estimates(plan(loaded, tmp_path / "runs"))["policy"]
        assert estimate["parameters"]["prm"] == estimate["parameters"]["actor"]
        assert estimate["parameters"]["prm reference"] == "prm without its adapter"
        assert estimate["memory"]["prm"] == estimate["memory"]["actor"]
        summary = execute(loaded, tmp_path / "runs")
        assert summary.exit == 0, summary.error
        made = {stage.name: stage.dir / "out" for stage in plan(loaded, tmp_path / "runs").stages}
        with pytest.raises(Problems, match="auxiliary") as refused:
            load(FOLDER / "prime.yaml", [*overrides, again.replace("auxiliary: prm", "auxiliary: prn")])
        assert 'did you mean "prm"' in str(refused.value)
        with pytest.raises(Problems, match="no such model beside the policy"):
            load(FOLDER / "prime.yaml", [*overrides, again, "stages.policy.algorithm=grpo"])
    prm = made["policy"] / "auxiliary" / "prm"
    assert weights(prm) != weights(made["policy"])
    started_from = json.loads((made["again"] / "fgrl.json").read_text(encoding="utf-8"))["model"]["base"]
    assert "auxiliary" in json.dumps(started_from)


def pairs_of(weights: list[list[float]]) -> list[Any]:
    responses = [[20, 31, 42, 2], [25, 36, 2], [40, 50, 60, 70, 2], [41, 2]]
    rows = [
        {"prompt": [1, 10 + i // 2], "response": ids, "finished": True, "columns": {"weight": torch.tensor(weight)}}
        for i, (ids, weight) in enumerate(zip(responses, weights, strict=True))
    ]
    return [rows[:2], rows[2:]]


def test_weighted_dpo_is_dpo_with_weights(files: dict[str, ModuleType], tiny_model_dir: Path, tmp_path: Path) -> None:
    policy = moved(tiny_model_dir)
    algorithm = files["weighted_dpo"].WeightedDPO(beta=0.3)

    def gradient(units: list[Any], loss: Any, pieces: int) -> tuple[float, list[torch.Tensor]]:
        encoded = EncodedUnits(units, pad_id=0, eos_ids={2}, columns={"weight": per_token(fill=1.0)})
        total = 0.0
        policy.zero_grad()
        for batch in StepLoader(encoded, [Step([0, 1])], micro_batches=pieces):
            share = loss(batch) / pieces
            share.backward()
            total += float(share.detach())
        return total, [p.grad.clone() for p in policy.parameters() if p.grad is not None]

    ones = pairs_of([[1.0] * 4, [1.0] * 3, [1.0] * 5, [1.0] * 2])
    dpo = DPO(beta=0.3, reference_pass="each_step")
    plain = gradient(ones, lambda batch: dpo.loss(policy, batch)[0], 1)
    for pieces in (1, 2):
        found = gradient(ones, lambda batch: algorithm.loss(policy, batch)[0], pieces)
        assert found[0] == pytest.approx(plain[0], rel=1e-5)
        assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(found[1], plain[1], strict=True))
    # with weights: the definition, from the transformers model
    weights = [[0.5, 2.0, 0.0, 1.0], [1.0, 3.0, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5], [2.0, 1.0]]
    units = pairs_of(weights)
    found = gradient(units, lambda batch: algorithm.loss(policy, batch)[0], 2)
    policy.zero_grad()

    def weighted(row: Any) -> torch.Tensor:
        ids, place = row["prompt"] + row["response"], len(row["prompt"]) - 1
        own = torch.log_softmax(policy.net(torch.tensor([ids])).logits[0, :-1], 1)[place:]
        with torch.no_grad(), policy.adapter_off():
            reference = torch.log_softmax(policy.net(torch.tensor([ids])).logits[0, :-1], 1)[place:]
        return ((own - reference)[range(len(row["response"])), row["response"]] * row["columns"]["weight"]).sum()

    losses = [-torch.nn.functional.logsigmoid(0.3 * (weighted(chosen) - weighted(other))) for chosen, other in units]
    loss = torch.stack(losses).mean()
    loss.backward()
    assert found[0] == pytest.approx(float(loss.detach()), rel=1e-4)
    expected = [p.grad for p in policy.parameters() if p.grad is not None]
    assert all(torch.allclose(one, two, atol=1e-5) for one, two in zip(found[1], expected, strict=True))


def test_the_reference_of_weighted_dpo_has_no_dropout(files: dict[str, ModuleType], tiny_model_dir: Path) -> None:
    """The policy drops the same parts in both losses, which start from the same random state."""
    policy = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8})
    policy.transformer.config.get_text_config().attention_dropout = 0.5
    for module in policy.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    policy.train()
    encoded = EncodedUnits(
        pairs_of([[1.0] * 4, [1.0] * 3, [1.0] * 5, [1.0] * 2]),
        pad_id=0,
        eos_ids={2},
        columns={"weight": per_token(fill=1.0)},
    )
    (batch,) = StepLoader(encoded, [Step([0, 1])], micro_batches=1)
    losses = []
    for algorithm in (files["weighted_dpo"].WeightedDPO(beta=0.3), DPO(beta=0.3, reference_pass="each_step")):
        torch.manual_seed(3)
        losses.append(float(algorithm.loss(policy, batch)[0].detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(math.log(2), abs=1e-4)  # the policy does drop something
    assert policy.training


def of_whole_distributions(policy: Any, reference: Any, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-ratio of a response, and its sequential KL(reference || policy), from the transformers models."""
    ids, place = row["prompt"] + row["response"], len(row["prompt"]) - 1
    own = torch.log_softmax(policy.net(torch.tensor([ids])).logits[0, :-1], 1)[place:]
    with torch.no_grad(), nullcontext() if reference is not policy else policy.adapter_off():
        other = torch.log_softmax(reference.net(torch.tensor([ids])).logits[0, :-1], 1)[place:]
    said = (range(len(row["response"])), row["response"])
    return (own[said] - other[said]).sum(), (other.exp() * (other - own)).sum()


@pytest.mark.parametrize("lora", [True, False], ids=["adapter", "whole"])
@pytest.mark.parametrize("variant", ["tdpo1", "tdpo2"])
def test_tdpo_is_the_equations_of_the_paper(
    variant: str, lora: bool, files: dict[str, ModuleType], tiny_model_dir: Path, tmp_path: Path
) -> None:
    algorithm = files["tdpo"].TDPO(variant=variant, beta=0.3, alpha=0.7)
    policy = moved(tiny_model_dir) if lora else tiny(tiny_model_dir, trainable=True)
    algorithm.prepare([], a_run(tmp_path), policy)
    reference = policy if lora else tiny(tiny_model_dir)
    if not lora:
        with torch.no_grad():
            for number, parameter in enumerate(policy.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
                parameter.add_(0.05 * noise)
    units = pairs_of([[1.0] * 4, [1.0] * 3, [1.0] * 5, [1.0] * 2])
    encoded = EncodedUnits(units, pad_id=0, eos_ids={2}, columns={"weight": per_token(fill=1.0)})

    def gradient(pieces: int) -> tuple[float, dict[str, torch.Tensor]]:
        batches = list(StepLoader(encoded, [Step([0, 1])], micro_batches=pieces))
        return step_gradient(policy, lambda batch: algorithm.loss(policy, batch)[0], batches)

    policy.zero_grad()
    losses = []
    for chosen, rejected in units:
        (won, kl_w), (lost, kl_l) = (of_whole_distributions(policy, reference, row) for row in (chosen, rejected))
        further = kl_l - kl_w if variant == "tdpo1" else 0.7 * (kl_l - kl_w.detach())
        losses.append(-torch.log(torch.sigmoid(0.3 * (won - lost - further))))
        assert float(kl_w.detach()) > 1e-3
    loss = torch.stack(losses).mean()
    loss.backward()
    expected = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    for pieces in (1, 2):
        found, gradients = gradient(pieces)
        assert found == pytest.approx(float(loss.detach()), rel=1e-4)
        assert distance(expected, gradients) < 1e-3


def test_without_an_adapter_the_reference_of_weighted_dpo_is_a_frozen_copy(
    files: dict[str, ModuleType], tiny_model_dir: Path, tmp_path: Path
) -> None:
    algorithm = files["weighted_dpo"].WeightedDPO(beta=0.3)
    policy = tiny(tiny_model_dir, trainable=True)
    algorithm.prepare([], a_run(tmp_path), policy)
    encoded = EncodedUnits(
        pairs_of([[1.0] * 4, [1.0] * 3, [1.0] * 5, [1.0] * 2]),
        pad_id=0,
        eos_ids={2},
        columns={"weight": per_token(fill=1.0)},
    )
    (batch,) = StepLoader(encoded, [Step([0, 1])], micro_batches=1)
    assert float(algorithm.loss(policy, batch)[0].detach()) == pytest.approx(math.log(2), abs=1e-6)
    assert algorithm.frozen_models(policy.spec).keys() == {"reference"}


def rewarded(rollout: Rollout, outcome: list[float]) -> Rewards:
    return Rewards(torch.tensor(outcome), torch.zeros(rollout.mask.shape), rollout.mask)


def drawn_four_times(model: Any, tokens: int, needs: frozenset[str]) -> tuple[LentPolicy, Rollout]:
    """Four responses to each of the two prompts."""
    sampling = Sampling(max_new_tokens=tokens, temperature=0.8)
    lent = LentPolicy(model, HF().open(model), sampling, seed=5, name="policy", micro_batch_size=3)
    return lent, rollouts.collect(
        model, model, PROMPTS, sampling, HF().open(model), needs, per_prompt=4, seed=5, lent_policy=lent
    )


OUTCOMES = [1.0, 0.0, 0.75, 0.0, 0.0, 1.0, 0.0, 0.25]


@pytest.mark.parametrize("standardize", ["apart", "together"])
@pytest.mark.parametrize("success", [0.5, None])
@torch.no_grad()
def test_gtpo_is_the_equations_of_the_paper(
    standardize: str, success: float | None, files: dict[str, ModuleType], model: Any
) -> None:
    algorithm = files["gtpo"].GTPO(entropy_weight=0.3, base=0.7, standardize=standardize, success=success)
    _lent, rollout = drawn_four_times(model, 7, algorithm.needs())
    rollout.mask[1, 5:] = rollout.mask[2, 4:] = rollout.mask[6, 3:] = False  # of different lengths
    found = algorithm.advantages(rollout, rewarded(rollout, OUTCOMES)).advantage.numpy()
    entropies: list[np.ndarray] = []
    for row in range(8):
        prompt, response = ids_of(rollout, row)
        rows = logprobs(model, prompt + response, 0.8)[len(prompt) - 1 :].double().numpy()
        entropies.append(-(np.exp(rows) * rows).sum(axis=1))
    for first in (0, 4):
        group = range(first, first + 4)
        least = 0.5 if success is not None else np.mean([OUTCOMES[row] for row in group])
        won = [row for row in group if OUTCOMES[row] > least]
        lost = [row for row in group if row not in won]
        assert won
        assert lost
        token = {}
        for rows, sign in ((won, 1), (lost, -1)):
            for row in rows:
                for t, entropy in enumerate(entropies[row]):
                    alive = [entropies[k][t] ** sign for k in rows if len(entropies[k]) > t]
                    share = entropy**sign / sum(alive) * len(alive)
                    token[row, t] = 0.7 * (OUTCOMES[row] if sign > 0 else -1) + 0.3 * sign * share
        for rows in (won, lost) if standardize == "apart" else ([*won, *lost],):
            values = np.array([token[row, t] for row in rows for t in range(len(entropies[row]))])
            for row in rows:
                for t in range(len(entropies[row])):
                    expected = 0.0 if values.std() < 1e-6 else (token[row, t] - values.mean()) / values.std()
                    assert found[row, t] == pytest.approx(expected, abs=2e-3)
    assert not found[~rollout.mask.numpy()].any()
    assert np.abs(found).max() > 0.5


@torch.no_grad()
def test_a_success_alone_and_certain_tokens_teach_nothing_apart(files: dict[str, ModuleType], model: Any) -> None:
    """Only one successful response: the share of its entropies is 1 everywhere. Entropies of 0 are not divided by."""
    algorithm = files["gtpo"].GTPO()
    _lent, rollout = lent_and_drawn(model, 5, algorithm.needs())
    rollout.entropy = torch.where(rollout.mask, torch.tensor([[0.5], [0.0], [1e-7], [0.0]]), 0.0)
    advantages = algorithm.advantages(rollout, rewarded(rollout, [1.0, 0.0, 0.0, 0.0]))
    assert not advantages.advantage.any()
    assert advantages.metrics["successful"] == 0.25
    assert advantages.metrics["idle"] == 1.0
    algorithm.standardize = "together"
    found = algorithm.advantages(rollout, rewarded(rollout, [1.0, 0.0, 0.0, 0.0])).advantage
    assert bool((found[0][rollout.mask[0]] > 0).all())
    assert bool((found[1][rollout.mask[1]] < 0).all())


def delta_weights(
    vectors: list[np.ndarray], advantage: list[float], spread: float, refinements: int
) -> list[np.ndarray]:
    """Appendix H, response by response, with squared distances as they are written."""
    sides = {sign: [i for i, a in enumerate(advantage) if a * sign > 0] for sign in (1, -1)}
    score = [np.ones(len(v)) for v in vectors]
    cached: dict[int, float] = {}
    for _ in range(refinements + 1):
        centre = {}
        for sign, rows in sides.items():
            mass = sum(abs(advantage[i]) * score[i].sum() for i in rows)
            centre[sign] = sum(abs(advantage[i]) * (score[i][:, None] * vectors[i]).sum(axis=0) for i in rows) / mass
        far = {
            i: ((vectors[i] - centre[-sign]) ** 2).sum(axis=1) - ((vectors[i] - centre[sign]) ** 2).sum(axis=1)
            for sign, rows in sides.items() for i in rows
        }  # fmt: skip
        stds = {sign: float(np.concatenate([far[i] for i in rows]).std()) for sign, rows in sides.items()}
        use = cached or stds
        score = [np.zeros(len(v)) for v in vectors]
        for sign, rows in sides.items():
            for i in rows:
                score[i] = 1 / (1 + np.exp(-far[i] / use[sign]))
        cached = stds
    raw = [1 - spread + 2 * spread * s for s in score]
    return [w / np.concatenate(raw).mean() for w in raw]


@pytest.mark.parametrize("refinements", [0, 1, 3])
@torch.no_grad()
def test_delta_is_the_equations_of_the_paper(refinements: int, files: dict[str, ModuleType], model: Any) -> None:
    algorithm = files["delta"].DelTA(spread=0.6, refinements=refinements)
    lent, rollout = drawn_four_times(model, 7, algorithm.needs())
    outcome = [1.0, 0.0, 0.75, 0.0, 0.5, 0.5, 0.5, 0.5]  # the second group is on neither side
    with lent.lend():
        advantages = algorithm.advantages(rollout, rewarded(rollout, outcome))
    mean, std = np.mean(outcome[:4]), np.std(outcome[:4], ddof=1)
    given = [float((each - mean) / std) for each in outcome[:4]] + [0.0] * 4
    head = model.transformer.get_output_embeddings().weight
    vectors = []
    for row in range(8):
        prompt, response = ids_of(rollout, row)
        states = model.transformer.model(torch.tensor([prompt + response])).last_hidden_state[0, len(prompt) - 1 : -1]
        own = torch.zeros(len(response), states.shape[1])
        for t, token in enumerate(
            response
        ):  # the gradient of the token's log-probability to its row of the output layer, by autograd
            with torch.enable_grad():
                matrix = head.detach().clone().requires_grad_()
                torch.log_softmax(matrix @ states[t] / 0.8, dim=0)[token].backward()
            own[t] = 0.8 * matrix.grad[token]
        vectors.append(own.double().numpy())
    weights = delta_weights(vectors, given, 0.6, refinements)
    assert max(np.ptp(weight) for weight in weights) > 0.1
    for row in range(8):
        length = len(weights[row])
        found = advantages.advantage[row, :length].numpy()
        np.testing.assert_allclose(found, given[row] * weights[row], atol=2e-3)
        assert not advantages.advantage[row, length:].any()
    # one pass
    assert lent.use.forward_tokens == int(rollout.mask.sum() + rollout.prompt_mask.sum())
    share = advantages.metrics["own_side"]
    assert 0 < float(share.total) <= float(share.count) == int(rollout.mask[:4].sum())


@torch.no_grad()
def test_delta_depends_on_no_micro_batches_and_is_grpo_without_spread(files: dict[str, ModuleType], model: Any) -> None:
    algorithm = files["delta"].DelTA(spread=0.8)
    lent, rollout = drawn_four_times(model, 7, algorithm.needs())
    found = []
    for size in (1, 3, 8):
        lent.micro_batch_size = size
        with lent.lend():
            found.append(algorithm.advantages(rollout, rewarded(rollout, OUTCOMES)).advantage)
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, atol=1e-5, rtol=0)
    plain = GRPO(aggregate="token_mean").advantages(rollout, rewarded(rollout, OUTCOMES)).advantage
    assert float((found[0] - plain).abs().max()) > 1e-2
    algorithm.spread = 0.0
    with lent.lend():
        even = algorithm.advantages(rollout, rewarded(rollout, OUTCOMES)).advantage
        nothing = algorithm.advantages(rollout, rewarded(rollout, [0.5] * 8)).advantage
    torch.testing.assert_close(even, plain)
    assert not nothing.any()


@pytest.mark.parametrize("clip", [None, 0.1])
@torch.no_grad()
def test_rto_is_the_log_ratio_of_the_dpo_model_and_the_outcome_at_the_end(
    clip: float | None, files: dict[str, ModuleType], model: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    teachers(tmp_path, tiny_model_dir)
    reward = build(
        Reward,
        {
            "name": "rto",
            "model": {"base": str(tmp_path / "dpo")},
            "beta": 0.3,
            "clip": clip,
            "outcome_weight": 2.0,
            "reward": "says_answer",
        },
    )
    reward.reward = Prepared()
    reward.setup(a_run(tmp_path))
    assert reward.reward._ready, "the reward that it holds may have a model, too"
    _lent, rollout = lent_and_drawn(model, 7, reward.needs())
    rewards = reward.scored(rollout)
    dpo, clipped = tiny(tmp_path / "dpo"), 0
    for row in range(4):
        prompt, response = ids_of(rollout, row)
        places = range(len(prompt) - 1, len(prompt) + len(response) - 1)
        own, reference = (
            logprobs(net, prompt + response, 0.8)[places, response].double().numpy() for net in (dpo, model)
        )
        dense = 0.3 * (own - reference)
        clipped += int((np.abs(dense) > 0.1).sum())
        dense = dense if clip is None else np.clip(dense, -clip, clip)
        np.testing.assert_allclose(rewards.columns["dpo_reward"][row, : len(response)], dense, atol=1e-4)
        dense[-1] += 2.0 * float(response[-1] % 2 == 0)
        np.testing.assert_allclose(rewards.token[row, : len(response)], dense, atol=1e-4)
        assert float(rewards.response[row]) == float(response[-1] % 2 == 0)
    assert clipped
    reward.micro_batch_size = 1
    torch.testing.assert_close(reward.scored(rollout).token, rewards.token, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_one_short_file(method: str) -> None:
    """Under 90 lines with its docstring and what only it imports; no private name but its own, no global statement, nothing kept."""
    imported_by: dict[str, set[str]] = {}
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")}
    for name, tree in trees.items():
        own = {
            node.target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        for node in ast.walk(tree):
            for module in [node.module] if isinstance(node, ast.ImportFrom) else []:
                imported_by.setdefault(str(module), set()).add(name)
            assert not isinstance(node, ast.Global | ast.Nonlocal)
            assert not (isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr not in own)
    files = [method] + [name for name in trees if imported_by.get(name) == {method}]
    assert sum(len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in files) < 90
    assignments = [node for node in trees[method].body if isinstance(node, ast.Assign | ast.AnnAssign)]
    assert not assignments
    assert (FOLDER.parents[1] / "docs" / "credit" / f"{method}.md").is_file()


def test_the_recipes_are_valid_and_say_what_needs_the_policy() -> None:
    paths = sorted(FOLDER.glob("*.yaml"))
    assert {path.stem for path in paths} == {"grpo", "turns", *METHODS}
    with scratch_imports():
        for path in paths:
            policy = load(path).stages["policy"]
            if path.stem == "tdpo":
                assert load(f"{path}::tdpo1").stages["policy"].algorithm.variant == "tdpo1"
                assert policy.data == load(FOLDER / "weighted_dpo.yaml").stages["policy"].data
                continue
            if path.stem == "weighted_dpo":
                baseline = load(f"{path}::dpo")
                assert isinstance(baseline.stages["policy"].algorithm, DPO)
                assert policy.algorithm.beta == baseline.stages["policy"].algorithm.beta
                assert policy.train == baseline.stages["policy"].train
                assert policy.data == baseline.stages["policy"].data
                continue
            if path.stem == "grpo":
                assert load(f"{path}::token_mean").stages["policy"].algorithm.aggregate == "token_mean"
                for row, times in (("twice", 2), ("four_times", 4)):
                    assert load(f"{path}::{row}").stages["policy"].train.iterations == times * policy.train.iterations
                assert policy.algorithm.aggregate == "seq_mean"
            asks = "policy" in policy.reward.needs() | policy.algorithm.needs()
            without = (
                "grpo",
                "top_entropy",
                "prime",
                "gtpo",
                "rto",
                "trace_answer",
                "cispo",
                "dapo",
                "turns",
                "mt_grpo",
                "gigpo",
                "progress",
            )
            assert asks == (path.stem not in without)
        with pytest.raises(
            Problems, match=r"weighted_grpo learns from weight, and the reward says_answer .*: .*grpo, ppo"
        ):
            load(FOLDER / "oar_g.yaml", ["stages.policy.reward=says_answer"])


def test_weighted_dpo_and_dpo_are_compared_on_held_out_questions(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = FOLDER / "weighted_dpo.yaml"
    overrides = [
        f"vars.base={tiny_model_dir}", "vars.held_out.limit=3", "stages.policy.model.dtype=float32",
        f"stages.policy.data.path={pairs_file(tmp_path, tiny_model_dir, 4)}", "stages.policy.holdout=0",
        "stages.policy.train.batch_size=2", "stages.policy.train.micro_batch_size=2", "stages.evaluate.sampling.max_new_tokens=3",
        "stages.evaluate.models.start.dtype=float32",
    ]  # fmt: skip
    with scratch_imports():
        done = CliRunner().invoke(
            app, ["compare", f"{recipe}::dpo", str(recipe), "--seeds", "0", "--run", "--json", *overrides]
        )
    assert done.exit_code == 0, done.output
    compared = json.loads(done.stdout)
    assert [row["key"] for row in compared["settings"]] == ["policy.algorithm"]
    numbers = {row["number"]: row for row in compared["stages"]["evaluate"]["numbers"]}
    assert {f"token_reward.{name}" for name in ("answer", "pair", "pair margin")} | {"kl.sum"} <= numbers.keys()
    margin = numbers["token_reward.pair margin"]
    assert all(value["low"] <= value["mean"] <= value["high"] for value in margin["recipes"].values())
    # the two trainings differ, and the model that they start from does not
    assert margin["recipes"]["weighted_dpo-dpo"]["mean"] != margin["recipes"]["weighted_dpo"]["mean"]
    assert margin["differences"]["weighted_dpo"]["over_prompts"]["n"] == 3


@pytest.mark.parametrize("name", ["grpo", "turns", *METHODS])
def test_every_recipe_can_be_inspected(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    overrides = [f"vars.base={tiny_model_dir}", "stages.policy.model.dtype=float32"]
    if name in OF_PAIRS:
        overrides.append(f"stages.policy.data.path={pairs_file(tmp_path, tiny_model_dir)}")
    else:
        overrides += ["stages.policy.rollout.per_prompt=2", "stages.policy.rollout.sampling.max_new_tokens=6"]
        overrides += teachers(tmp_path, tiny_model_dir) if name == "rto" else []
    with scratch_imports():
        stage = load(FOLDER / f"{name}.yaml", overrides).stages["policy"]
        assert len(list(stage.inspect(a_run(tmp_path), 2))) >= 2
