"""A language model that answers prompts and computes the probability of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe
from fgrl.kinds import default_engine
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.library.inputs import libraries_quiet, random_state_kept
from fgrl.library.scored_texts import ScoredText, of_values
from fgrl.registry.explaining import nearby
from fgrl.types import Message, Ref, Sample

if TYPE_CHECKING:
    from fgrl.models import LanguageModel
    from fgrl.types import DrawnResponse
answer_files = lazy.load("fgrl.measuring.answer")
attributing = lazy.load("fgrl.measuring.attributing")
models = lazy.load("fgrl.models")
rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")

Prompt = str | Sequence[Message | Mapping[str, str]]
"""A text, or the turns of a chat: `[{"role": "user", "content": "..."}]`."""
LOG_PROBABILITY = "log-probability"


@dataclass(frozen=True)
class Generated:
    """A response that a policy generated."""

    prompt: str | list[Message]
    text: str
    """Text without special tokens."""
    finished: bool
    """True if it ended by itself, False if the length limit cut it."""
    token_ids: list[int]
    """Token ids, with the end-of-sequence token if there is one."""

    def __str__(self) -> str:
        return self.text


class Policy:
    """A language model with its tokenizer, as fgrl trains it: prompts go through the chat template, if there is one."""

    def __init__(self, language_model: LanguageModel, source: str) -> None:
        self.language_model = language_model
        """fgrl's own object for the model, which the components of recipes use."""
        self.source = source
        """Place that the model was loaded from, as text."""

    @property
    def model(self) -> Any:
        """The model of transformers, inside a model of peft if it has an adapter."""
        return self.language_model.net

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of transformers."""
        return self.language_model.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        n: int = 1,
        max_new_tokens: int = 128,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_prompt_tokens: int | None = None,
        batch_size: int = 16,
        seed: int = 0,
    ) -> list[Generated]:
        """Return `n` responses to every prompt, in the prompts' order.

        prompts: one or several; a prompt is a text or the turns of a chat. temperature 0 is greedy decoding.
        max_prompt_tokens: longer prompts lose their beginning; None: as many tokens as the model reads beside the
        response. The same arguments give the same responses. Raises `UsageError` for a setting out of its bounds,
        `DataError` for a prompt that cannot be encoded.
        """
        asked = [as_prompt(prompt) for prompt in ([prompts] if _is_one(prompts) else prompts)]  # type: ignore[arg-type]
        most = max_prompt_tokens or max(1, (self.language_model.max_tokens or 2**30) - max_new_tokens)
        sampling = checked(
            Sampling, max_new_tokens=max_new_tokens, max_prompt_tokens=most, temperature=temperature, top_p=top_p, top_k=top_k,
            batch_size=batch_size,
        )  # fmt: skip
        samples = [Sample(id=str(i), prompt=prompt) for i, prompt in enumerate(asked)]
        recipe.know_components()
        with random_state_kept(), libraries_quiet(), default_engine().open(self.language_model) as drawer:
            drawn = rollouts.draw(self.language_model, drawer, samples, sampling, n, seed=seed)
        return [
            Generated(prompt, each.text, each.finish == "end", list(rollouts.ids_of(each)))
            for prompt, group in zip(asked, drawn, strict=True)
            for each in group
        ]

    def log_probs(self, prompt: Prompt, answer: str, *, finished: bool = True) -> ScoredText:
        """Return the log-probability of each token of an answer to a prompt, in nats, at temperature 1: `values` [T]
        and `total`.

        finished: True if the answer ends there. The last token is then the end-of-sequence token.
        """
        sample = Sample(id="0", prompt=as_prompt(prompt))
        written = encoded(self.language_model, sample, answer, finished=finished)
        rollout = attributing.as_rollout(
            [written], self.language_model, needs=frozenset({"old_logp", "offsets"}), reference=None, samples=[sample]
        )
        values = rollout.old_logp[0].tolist()
        record = answer_files.Answer(
            sample=sample,
            response={"text": rollout.texts[0], "finished": finished},
            tokens=rollouts.token_texts(self.tokenizer, written),
            offsets=rollout.offsets[0],
            logp=sum(values),
        )
        return of_values(record, LOG_PROBABILITY, values, sum(values))

    def __repr__(self) -> str:
        adapter = "with an adapter" if self.language_model.adapted else "without an adapter"
        return f"Policy({type(self.language_model.transformer).__name__} from {self.source}, {adapter})"


def load_model(
    place: Path | str,
    *,
    step: int | None = None,
    revision: str | None = None,
    dtype: Literal["auto", "float32", "bfloat16"] | None = None,
    device: str | None = None,
) -> Policy:
    """Return the model in a folder, or on the hub. With `step`, return the model of that step, which the product of a
    training kept.

    See `fgrl.load` for the arguments and the errors.
    """
    given: dict[str, Any] = {"base": str(place)} if step is None else {"base": Ref("stage"), "step": step}
    options = {"dtype": dtype, "revision": revision}
    spec = checked(ModelSpec, **given, **{name: value for name, value in options.items() if value is not None})
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with random_state_kept(), libraries_quiet():
        model = models.load(spec, resolve=lambda _ref: Path(place)).to(chosen)
    name = nearby(Path(place)) if Path(place).is_dir() else str(place)
    return Policy(model, name if step is None else f"{name}, step {step}")


def checked(settings: Any, **values: Any) -> Any:
    """Return settings from keyword arguments. A wrong value is a `UsageError` that names the argument."""
    try:
        return settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}") from None


def encoded(model: LanguageModel, sample: Sample, answer: str, *, finished: bool) -> DrawnResponse:
    """Return an answer to a prompt as if the model had drawn it, with an end-of-sequence token if `finished` is True.

    Raises `UsageError` for an answer without a token, `DataError` for a prompt that cannot be encoded.
    """
    ids = rollouts.encode_response(model.tokenizer, answer, model.end_id)
    response = ids if finished else ids[:-1]
    if not response:
        raise UsageError("the answer is empty and unfinished: it has no token to score")
    prompt = rollouts.encode_prompt(model.tokenizer, sample.prompt)
    return rollouts.given(model, prompt, response)


def _is_one(prompts: Any) -> bool:
    """Return True for one prompt; False for a list of them."""
    return isinstance(prompts, str) or (bool(prompts) and isinstance(prompts[0], Message | Mapping))


def as_prompt(prompt: Prompt) -> str | list[Message]:
    """Return a text, or turns as records."""
    if isinstance(prompt, str):
        return prompt
    return [turn if isinstance(turn, Message) else checked(Message, **turn) for turn in prompt]
