"""The kinds of component that a recipe may name. Read this file first.

A component is a pydantic model: its typed fields are its schema in recipes, the docstring under a field is its help.
Constructing one is cheap; a component that needs a model or a file asks for it in `setup(run)`.

    @register("every_third")
    class EveryThird(Segmenter):
        '''A segment every third token.'''

        def starts(self, view):
            ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field, PrivateAttr, model_validator

from fgrl import ops
from fgrl.errors import DataError, Undecided, UnknownNeed
from fgrl.functions import checked_rewards, checked_starts, own_code
from fgrl.registry import Component, Key, Settings, alternatives, build, kind, name_of, walk
from fgrl.specs import ModelSpec, Sampling
from fgrl.types import (
    Advantages,
    Batch,
    Column,
    Completion,
    Criterion,
    Feeling,
    Marked,
    Number,
    Pair,
    Product,
    Ref,
    Request,
    Rewards,
    Rollout,
    Sample,
    Segmentable,
    Span,
    Stats,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

Numbers = dict[str, Number]
Accelerator = Literal["auto", "cpu", "gpu"]
Scope = Literal["global", "positive", "negative"]
"""Which characters a rule is about: all of them, those that keep it, or those that break it."""


class Ticker(Protocol):
    """A progress line: `advance(8, reward=0.3)`."""

    def advance(self, steps: int = 1, **shown: float | str) -> None: ...


class Run(Protocol):
    """What a running stage may ask for. `fgrl.pipeline.run` has the real one."""

    seed: int
    dir: Path
    """The stage's own folder: `last.ckpt`, `log.jsonl`, and whatever it needs to resume."""
    out: Path
    """Where the product goes."""
    cache: Path
    """Folder shared by all stages, for files named by a hash of what they were computed from."""
    device: Any
    """Where models of this process live."""
    rank: int
    limit: int | None
    """`--limit`, a quick trial: read at most this many samples, take at most this many steps."""
    interrupted: bool
    """Ctrl-C was pressed: save and leave."""

    def path(self, ref: Ref[Any]) -> Path:
        """The product folder of another stage."""

    def model(self, spec: ModelSpec, *, head: str = "lm", trainable: bool = False) -> Any:
        """A loaded `fgrl.models.LanguageModel`; frozen ones are shared within the stage."""

    def forget_models(self) -> None:
        """Free the frozen models that nothing else holds."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append to the stage's log (JSONL, CSV, W&B)."""

    def say(self, text: str) -> None:
        """One line for the person at the terminal (stderr)."""

    def stop_if_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` after a Ctrl-C: everything up to here is on disk."""

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Ticker]:
        """A progress line with ETA."""


@dataclass(frozen=True)
class Expected:
    """What a stage that has not run will make, at most."""

    samples: int
    responses: int | None = None
    """Of each sample; None is unknown."""

    def after(self, skip: int, limit: int | None) -> Expected:
        """What is left when `skip` samples are passed over and `limit` are taken (None takes all)."""
        left = max(0, self.samples - skip)
        return Expected(left if limit is None else min(left, limit), self.responses)


class Peek(Protocol):
    """What a stage may look at before it runs."""

    limit: int | None
    cache: Path

    def path(self, ref: Ref[Any]) -> Path:
        """The product folder of a finished stage. Raises `fgrl.errors.NotYet`."""

    def stage(self, ref: Ref[Any]) -> Stage:
        """The stage that makes it, as the recipe describes it; it need not have run."""

    def expects(self, ref: Ref[Any]) -> Expected | None:
        """What another stage will make at most (`Stage.expects`), finished or not."""

    def say(self, text: str) -> None: ...


@kind("reader")
class Reader(Component, ABC):
    """Where prompts, pairs or answers come from."""

    @abstractmethod
    def read(self) -> Iterator[Sample]:
        """Samples in a fixed order. A missing column is a `DataError` that shows the first row."""

    def pairs(self) -> Iterator[Pair]:
        """Preference pairs; only readers of preference data have them."""
        raise DataError(
            f"the reader {name_of(self)[1]!r} has samples, not pairs: read a data set with `format: preference`, or the "
            "pairs of a `pair` stage with {name: pairs, of: ...}"
        )

    def expects(self, peek: Peek) -> Expected | None:
        """At most how much `read` gives, known without reading; None when that is not known."""
        return None

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """How many criteria of which kind the prompts have, for plans and summaries; {} when prompts have none, or it is not
        known.

        peek: read what lies on this machine; without it only what `read` has counted already.
        """
        return {}

    def placed(self) -> Collection[str]:
        """Fields that name a place whose contents `identity` has: where it lies does not count for the stage's key."""
        return ()

    def identity(self) -> dict[str, Any]:
        """What identifies the data, beyond the fields and the contents of `File` fields; part of the stage's key."""
        return {}


@kind("verifier")
class Verifier(Component, ABC):
    """A rule that a program can check."""

    @abstractmethod
    def check(self, response: str) -> bool:
        """Does the response keep the rule? Raises `Undecided` when that cannot be found out."""

    def verdict(self, response: str) -> bool | None:
        """`check`, with None for what could not be decided: neither kept nor broken, but missing."""
        try:
            return self.check(response)
        except Undecided:
            return None

    def scope(self) -> Scope:
        """Which characters of a response the rule is about."""
        return "global"

    def title(self) -> str:
        """The rule in one line, for tables."""
        return name_of(self)[1]

    def verdicts(self, response: str) -> dict[str, bool | None]:
        """`verdict` by title; of several rules at once, of each of them."""
        return {self.title(): self.verdict(response)}

    def may_be_undecided(self) -> bool:
        """Can `check` raise `Undecided`?"""
        return False

    def undecided(self) -> dict[str, int]:
        """How many different responses were undecided, by reason."""
        return {}

    def reads_variants(self) -> bool:
        """May a variant of the response (without its first line, without asterisks) be checked in its place? False for
        programs, which are other programs then."""
        return True

    def violations(self, response: str) -> list[Span] | None:
        """Characters that break the rule (label -1), or None when the rule cannot say where."""
        return None

    def marks_breaks(self) -> bool:
        """Can `violations` return characters at all? False: a broken rule is broken nowhere in particular."""
        return type(self).violations is not Verifier.violations

    def evidence(self, response: str) -> list[Span] | None:
        """Characters that speak for the rule (label +1), whatever the verdict, or None when the rule cannot say where."""
        return None


@kind("client")
class Client(Component, ABC):
    """Asks a language model: an endpoint, a model in this process, answers from a file."""

    collective: ClassVar[bool] = False
    """In a stage of several processes every rank calls `complete`, with the same requests. False: `fgrl.llm.asking.ask`
    calls it on rank 0 alone and hands the answers on."""

    @abstractmethod
    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in their order; one that failed for good has the reason in `error`.

        Raises `OverBudget` when the recipe's limits on money or calls are reached; all answers until then are kept.
        """

    def look(self, peek: Peek) -> None:
        """Get what `count_tokens` needs, for a plan: called instead of `setup`, and loads no model."""

    def count_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt as the model counts them, or the best estimate without asking."""
        return sum(len(message.content) for message in request.messages) // 4

    def price(self) -> tuple[float, float] | None:
        """USD per million prompt tokens and per million completion tokens; None when it is not known."""
        return None

    def context_length(self) -> int | None:
        """Return how many tokens a prompt and its answer may have together; None when it is not known."""
        return None

    def warning(self, today: date) -> str | None:
        """Return what a plan warns about, such as a model that is no longer offered; None without a warning."""
        return None

    def counts(self) -> dict[str, Any]:
        """What was used in this stage so far: `calls`, `prompt_tokens`, `completion_tokens`, `usd`; empty for a client that
        does not count."""
        return {}


UNDRAWN = "."
"""Stands for a response that is not drawn yet: an empty one would not be judged."""


@dataclass(frozen=True)
class AtMost:
    """Requests about texts that do not exist yet."""

    request: Request
    """One of them, with everything filled in that is known."""
    calls: int
    """How many there are, at most."""
    missing_tokens: int
    """What the texts add to the prompt of each, at most."""
    fewer: bool = True
    """There may be fewer calls, since requests about equal texts are sent once."""


@dataclass(frozen=True)
class ToDraw:
    """Responses that a stage will draw, as far as they are known before it runs."""

    prompts: Callable[[], Sequence[Sample]]
    """Reads the prompts. Raises `fgrl.errors.NotYet` where another stage has to make them first."""
    size: Callable[[], tuple[int, int]]
    """How many prompts there are and how many turns each has, at most; reads the prompts only where it must."""
    models: Sequence[str]
    """Whose responses they are."""
    per_prompt: int
    """Responses of each model to each prompt."""
    sampling: Sampling
    """Limits their length."""

    def about_each(self, asks: Callable[[Sample, str], Sequence[Request]]) -> list[AtMost]:
        """What `asks(prompt, response)` comes to over all responses."""
        responses = self.per_prompt * len(self.models)
        return [
            AtMost(request, responses, self.sampling.max_new_tokens)
            for prompt in self.prompts()
            for request in asks(prompt, UNDRAWN)
        ]


class Asker(Component):
    """What may ask a language model: annotators, judges, metrics and rewards.

    Its questions are stated here and nowhere else; plans count them (`fgrl.llm.estimating`), whatever the component is.
    """

    def asked_client(self) -> Client | None:
        """Who gets the requests: the client that the component or a part of it holds; None when there is none."""
        return next((part for _path, part in walk(self) if isinstance(part, Client)), None)

    def asks(self, given: Any) -> list[Request]:
        """The requests about `given`, the input of the component's main method (of a reward: prompts with a response each),
        before any question is retried."""
        return []

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        """A bound for input that does not exist yet: the requests, or only their number; None when it is not known.

        expected: `Expected` of an annotator, `ToDraw` of a metric or a reward.
        """
        return None

    def counts(self) -> dict[str, Any]:
        """What the stage's summary and log report afterwards: failures by kind, ties, unmatched quotes."""
        return {}


@kind("annotator")
class Annotator(Asker, ABC):
    """Adds to samples what rewards, pairs and metrics are made of: scores, verdicts, critiques, spans."""

    keeps_responses: ClassVar[bool] = False
    """True if samples keep their responses and get no others: a recipe whose pairs come of one response is then refused before it runs."""

    @abstractmethod
    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Annotated copies, in order. May add or drop samples, never changes one in place.

        A judgement that failed is left missing (a score of None) and counted in `counts`.
        """

    def makes_at_most(self, expected: Expected) -> Expected | None:
        """At most what `annotate` makes of these samples, known before they exist; None when that is not known."""
        return expected

    def failed(self) -> list[Sample]:
        """What the last `annotate` left out because it failed, for `failed.jsonl` beside the product."""
        return []


@dataclass(frozen=True)
class ChainCase:
    """A response that is to be improved in steps, each of which addresses one disliked passage."""

    sample: Sample
    place: int
    """Of the response among the sample's responses."""
    original: Marked
    """The response with its highlights. The disliked ones are numbered from left to right."""
    spans: Mapping[tuple[Feeling, int], Span]
    """What the annotator recorded about each passage, by `Highlight.key`."""
    explanations: Mapping[tuple[Feeling, int], str]
    """Why each passage was marked, in sentences."""
    check: Callable[[Marked, Marked, int], object]
    """`check(before, after, number)` raises ValueError, with a reason that a model can act on, unless `after` is `before` with
    one edit that addresses dislike `number`."""

    @property
    def steps(self) -> int:
        """How many disliked passages there are to address."""
        return sum(highlight.feeling == "dislike" for highlight in self.original.highlights)


@dataclass(frozen=True)
class ChainAttempt:
    """One attempt at a chain: exactly one of `steps` and `problem` is set."""

    steps: Sequence[Marked] = ()
    """The response after each step, all of which passed the check."""
    problem: str | None = None
    """What kept the attempt from being a chain, in a few words that are the same for all attempts of this sort."""
    detail: str = ""
    """The problem in full."""
    answer: str | None = None
    """What was written, for a chain that is not one; None: nothing was."""
    answered: bool = True
    """False: nobody answered, so a further attempt is not made."""


@kind("rewriter")
class Rewriter(Asker, ABC):
    """Improves responses step by step, as their highlights ask (the annotator `improvement_chain`)."""

    varies: ClassVar[bool] = True
    """Can another attempt give another result? False for rules, which are not tried again."""

    by: str | None = None
    """The name that rewritten responses get as their author; null is the rewriter's own."""

    @abstractmethod
    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        """One attempt at each case, in order. number: from 0; another one draws other answers."""

    def about(self) -> dict[str, Any]:
        """What a chain records about how it was written."""
        return {"rewriter": self.by or name_of(self)[1]}


@kind("pair_builder")
class PairBuilder(Component, ABC):
    """Makes preference pairs of a sample's responses."""

    @abstractmethod
    def build(self, sample: Sample) -> list[Pair]:
        """Pairs of one prompt, possibly none."""


@kind("segmenter")
class Segmenter(Component, ABC):
    """Divides responses into segments, the actions that receive rewards."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """What `starts` reads besides ids and masks: "entropy" of the reference, "text" with offsets."""

    include_eos: bool = False
    """Count the end-of-sequence token as part of the last segment."""

    @model_validator(mode="after")
    def _known_needs(self) -> Segmenter:
        check_needs(self, self.needs, ("entropy", "text"))
        return self

    @abstractmethod
    def starts(self, view: Segmentable) -> Tensor:
        """bool [B,T]: True where a token starts a segment."""

    def segment_ids(self, view: Segmentable) -> Tensor:
        """Long [B,T]: the index of the segment each token belongs to, -1 for none.

        The first response token always starts a segment. The end-of-sequence token belongs to none (unless
        `include_eos`), except in a response without other tokens: then it is the only segment.
        """
        inside = ops.inside_segments(view.mask, view.eos, self.include_eos)
        with own_code(self, "starts"):
            value = self.starts(view)
        return ops.segment_ids(checked_starts(self, value, view), inside)


@kind("normalizer")
class Normalizer(Component, ABC):
    """Centres and scales segment rewards."""

    needs_fit: ClassVar[bool] = True

    fitted: Ref[Stats] | None = None
    """The statistics to apply: `${out:stage}` of a `calibrate` stage."""

    def ready(self) -> bool:
        """Can `apply` be called: is no fit needed, or does the recipe specify one?"""
        return not self.needs_fit or self.fitted is not None

    @abstractmethod
    def fit(self, rewards: Tensor, locations: Tensor, valid: Tensor) -> dict[str, Any]:
        """Statistics of calibration rewards: `rewards`, `locations`, `valid` [B,S]. JSON-ready."""

    @abstractmethod
    def apply(self, rewards: Tensor, locations: Tensor, valid: Tensor, stats: Mapping[str, Any] | None) -> Tensor:
        """Normalized rewards, shaped as `rewards`; 0 where not valid. `stats` is what `fit` returned."""


@dataclass(frozen=True)
class Checked:
    """A criterion and its verdict in a response."""

    row: int
    """Which response of the rollout."""
    criterion: Criterion
    rule: Verifier | None
    """The verifier that decided; None for a judge."""
    kept: bool | None
    """The verdict; None is missing."""


@kind("judge")
class Judge(Asker, ABC):
    """Decides the criteria that no program can check."""

    @abstractmethod
    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        """Does the response to the sample keep the criterion? None when the judgement failed; never a guess."""


@dataclass(frozen=True)
class DrawnShape:
    """The size of responses that a stage will draw, at most."""

    responses: int
    prompt_tokens: int
    """Of each response's prompt."""
    response_tokens: int
    """Of each response (`sampling.max_new_tokens`)."""

    @property
    def tokens(self) -> int:
        """Of all prompts and responses: what one pass over them reads."""
        return self.responses * (self.prompt_tokens + self.response_tokens)


@dataclass(frozen=True)
class PolicyWork:
    """What a component asks of the policy beyond drawing responses and one pass over them, at most."""

    forward_tokens: int = 0
    """Tokens of prompts and responses in further passes."""
    backward_tokens: int = 0
    """Those of passes with a gradient to the inputs."""
    continuations: int = 0
    """How many are drawn."""
    generated_tokens: int = 0
    """Tokens of continuations."""

    def __add__(self, other: PolicyWork) -> PolicyWork:
        return PolicyWork(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def times(self, count: int) -> PolicyWork:
        return PolicyWork(**{name: value * count for name, value in vars(self).items()})


@kind("relevance")
class Relevance(Component, ABC):
    """Determines which tokens of a response a criterion's verdict depends on."""

    def needs(self) -> frozenset[str]:
        """Fields of `Rollout` to fill, of `ROLLOUT_NEEDS`. Known after `setup`."""
        return frozenset()

    def needs_before_setup(self) -> frozenset[str]:
        """What is known of `needs` when a recipe is checked: all of it, unless `setup` decides."""
        return self.needs() if type(self).setup is Component.setup else frozenset()

    def tokenizer(self) -> Any:
        """The tokenizer whose token ids it reads; None when it reads text. Known after `setup`."""
        return None

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """At most what `weigh` asks of the policy for so many responses, for `fgrl plan`; None when it is not known."""
        return None if "policy" in self.needs_before_setup() else PolicyWork()

    @abstractmethod
    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        """For each criterion the weights, 0 to 1, of the real tokens of its response: float [length], on the CPU.

        None where it has no weights: that criterion then has no token reward in that response.
        """

    _counts: dict[str, float] = PrivateAttr(default_factory=dict)

    def counts(self) -> dict[str, float]:
        """Counts of the last `weigh`, for the log."""
        return self._counts


@kind("reward")
class Reward(Asker, ABC):
    """Scores rollouts."""

    reads_reference: ClassVar[bool] = True
    """Of a reward whose `setup` decides its `needs`: may they contain outputs of the reference? If not, an `rl` stage loads no reference
    unless something else needs it. Rewards that it holds state this themselves."""

    def may_read_reference(self) -> bool:
        """May `needs` contain outputs of the reference? See `reads_reference`; all needs of a reward without a `setup` are known."""
        decided = type(self).setup is Component.setup
        return bool(self.needs_before_setup() & REFERENCE_OUTPUTS) or (self.reads_reference and not decided)

    def needs(self) -> frozenset[str]:
        """Fields of `Rollout` to fill, e.g. "ref_entropy", "offsets". Known after `setup`."""
        return frozenset()

    def needs_before_setup(self) -> frozenset[str]:
        """What is known of `needs` when a recipe is checked: all of it, unless `setup` decides."""
        return self.needs() if type(self).setup is Component.setup else frozenset()

    def tokenizer(self) -> Any:
        """The tokenizer whose token ids the reward reads; None when it reads text. Known after `setup`."""
        return None

    def fills(self) -> frozenset[str]:
        """Optional fields of `Rewards` that `score` fills, e.g. "criterion", and the names of its `columns`."""
        return frozenset()

    def on_tokens(self) -> bool | None:
        """True if rewards are on tokens or segments of a response; False if all of it is on the last token; None: not declared."""
        return None

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` when responses to these prompts cannot be scored. Called after `setup`, before training."""

    def at_step(self, step: int, total: int) -> None:
        """Called before the responses of each iteration of a training are scored: `step` of `total` optimizer steps are taken. A
        training calls it of the rewards inside this one as well (`note_step`)."""

    def judged(self, sample: Sample) -> list[Criterion]:
        """Criteria of a prompt that the reward's judge decides in each response to it."""
        return []

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        """The requests about responses (each with its prompt), before any question is retried: those of its judge."""
        cases = [(prompt, response, criterion) for prompt, response in given for criterion in self.judged(prompt)]
        return [request for judge in self._judges() for request in judge.asks(cases)]

    def asks_at_most(self, expected: ToDraw) -> Sequence[AtMost] | None:
        """A bound on the requests about responses that are not drawn yet; None when it is not known."""
        if not self._judges():
            return None
        return expected.about_each(lambda prompt, response: self.asks([(prompt, response)]))

    def _judges(self) -> list[Judge]:
        """The judge that the reward holds, if any."""
        return [part for _path, part in walk(self) if isinstance(part, Judge)][:1]

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """At most what `score` asks of the policy for so many responses, for `fgrl plan`; None when it is not known. What relevances and
        rewards that it holds ask is counted apart."""
        own = "policy" in self.needs_before_setup()
        inside = any("policy" in part.needs_before_setup() for path, part in scorers(self).items() if path)
        return None if own and not inside else PolicyWork()

    @abstractmethod
    def score(self, rollout: Rollout) -> Rewards:
        """Rewards of sampled responses. A failed judgement is NaN, never 0."""

    def scored(self, rollout: Rollout) -> Rewards:
        """What `score` returns, after a check of its shapes. Raises `UserCodeError` when they do not fit the rollout."""
        with own_code(self, "score"):
            value = self.score(rollout)
        return checked_rewards(self, value, rollout)

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Raw rewards of the actions that a normalizer is fitted on: rewards, locations, valid, each [B,S]."""
        raise TypeError(f"{type(self).__name__} has no segment rewards to calibrate")


class RewardWrapper(Reward):
    """A reward that is computed from another one.

    What `reward` needs, fills, asks and reads counts for the wrapper as well. A subclass defines `score`, and names what it needs and
    fills itself.

        @register("halved")
        class Halved(RewardWrapper):
            '''Half of another reward.'''

            def score(self, rollout):
                rewards = self.reward.scored(rollout)
                return replace(rewards, response=rewards.response / 2, token=rewards.token / 2)
    """

    reads_reference = False
    """See `Reward`: without what `reward` reads."""
    own_needs: ClassVar[frozenset[str]] = frozenset()
    """What the wrapper needs of the rollout beyond what `reward` needs."""
    own_fills: ClassVar[frozenset[str]] = frozenset()
    """What it fills beyond what `reward` fills."""

    reward: Reward
    """What a response is worth."""

    def setup(self, run: Run) -> None:
        """Set up `reward` and every other component that a field holds, also in lists, mappings and blocks of settings."""
        for name in type(self).model_fields:
            for part in _components_in(getattr(self, name)):
                part.setup(run)

    def needs(self) -> frozenset[str]:
        return self.own_needs | self.reward.needs()

    def needs_before_setup(self) -> frozenset[str]:
        return self.own_needs | self.reward.needs_before_setup()

    def tokenizer(self) -> Any:
        return self.reward.tokenizer()

    def fills(self) -> frozenset[str]:
        return self.own_fills | self.reward.fills()

    def on_tokens(self) -> bool | None:
        return self.reward.on_tokens()

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        self.reward.check_prompts(samples)

    def judged(self, sample: Sample) -> list[Criterion]:
        return self.reward.judged(sample)

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        return self.reward.asks(given)

    def asks_at_most(self, expected: ToDraw) -> Sequence[AtMost] | None:
        return self.reward.asks_at_most(expected)

    def counts(self) -> dict[str, Any]:
        return self.reward.counts()

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """What `reward` asks is counted apart."""
        own = self.own_needs | (self.needs_before_setup() - self.reward.needs_before_setup())
        return None if "policy" in own else PolicyWork()

    def actions(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        return self.reward.actions(rollout)


def _components_in(value: Any) -> Iterator[Component]:
    """The components that a field's value is or contains; not what is inside of them."""
    if isinstance(value, Component):
        yield value
    elif isinstance(value, Settings):
        for name in type(value).model_fields:
            yield from _components_in(getattr(value, name))
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _components_in(item)


@dataclass(frozen=True)
class Encoded:
    """A sample as token ids, with the columns that an algorithm needs."""

    prompt: list[int]
    response: list[int]
    columns: dict[str, Tensor]
    """One value, or one value per response token; declared in the algorithm's `columns`."""


@kind("offline_algorithm")
class OfflineAlgorithm(Component, ABC):
    """A loss on a fixed data set."""

    data: ClassVar[str]
    """"pairs" (rows 2i chosen, 2i+1 rejected) or "samples"."""
    head: ClassVar[str] = "lm"
    columns: ClassVar[Mapping[str, Column]] = {}
    """The columns that `encode` and `prepare` add or that come with the data (`reads`), e.g. `{"segment": per_token(fill=-1)}` (see `fgrl.types.columns`)."""

    def reads(self) -> frozenset[str]:
        """The `columns` that come with the data: a number, or a list of one number per token, under this name in the `meta` of each
        sample or pair. Of a pair, {chosen: ..., rejected: ...} has a value for each response."""
        return frozenset()

    def encode(self, sample: Sample, model: Any, max_tokens: int) -> Encoded | None:
        """A sample that is not read as a chat: its own ids and columns, at most `max_tokens` together.

        None: the prompt goes through the chat template, and the response (or the reference) is closed with an
        end-of-sequence token.
        """
        return None

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """One-time passes before training; adds columns: `row["columns"][name] = tensor` (see `fgrl.rollouts.rows`).

        Each column has to be declared in `columns`.
        """

    def begin(self, model: Any, units: Sequence[Batch], run: Run, rank: int = 0, world: int = 1) -> None:
        """One-time passes right before the first step of this process, when the model is on its device, in its type and inside its
        precision: called by each of `world` processes. units: all that the steps take, each as a separate batch."""

    def unit_by_unit(self) -> bool:
        """Does `loss` read each unit in a separate pass, so that larger micro-batches only take more memory?"""
        return False

    def frozen_models(self, model: ModelSpec) -> dict[str, ModelSpec]:
        """The models that it loads in addition to the trained one (`model`), by role; `fgrl plan` counts them."""
        return {}

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Scalar loss and metrics of a micro-batch.

        A metric is a plain number (then it is averaged over rows), a `fgrl.types.Mean` (over tokens, segments), or a `Most`.
        """

    def describe(self) -> dict[str, Any]:
        """What a user of the trained checkpoint must know (stored in `fgrl.json`)."""
        return {}


ROLLOUT_NEEDS = frozenset(
    {"old_logp", "entropy", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "text", "policy"}
)
"""What algorithms and rewards may ask a rollout for. "policy" is the model that drew the responses: `Rollout.policy`."""

REFERENCE_OUTPUTS = frozenset({"ref_logp", "ref_entropy", "ref_kl"})
"""Those that the reference computes."""
GIVEN_NEEDS = ROLLOUT_NEEDS - {"policy", "entropy"}
"""What rewards may ask of responses that were not drawn in the same stage: which model drew them, and at which temperature, is not known
there. "ref_entropy" is the reference's, at temperature 1."""
GRADED_NEEDS = frozenset({"offsets", "text"})
"""What relevances may ask of the responses that a stage `grade` reads."""


def check_needs(
    component: Component, needs: Collection[str], known: Collection[str] = ROLLOUT_NEEDS, field: str | None = None
) -> None:
    """Raise `UnknownNeed` unless everything that a component needs can be computed for it. field: which holds it."""
    for need in sorted(set(needs) - set(known)):
        kind, name = name_of(component)
        where = f"{field}: " if field else ""
        hint = alternatives(need, sorted(known))
        raise UnknownNeed(f'{where}the {kind} {name} needs "{need}", which nothing computes; {hint}')


def scorers(scorer: Reward | Relevance) -> dict[Key, Reward | Relevance]:
    """A reward or a relevance, and the rewards and relevances that it holds, by their path in it."""
    inside = {path: part for path, part in walk(scorer) if isinstance(part, Reward | Relevance)}
    return {(): scorer, **inside}


def note_step(reward: Reward, step: int, total: int) -> None:
    """Call `at_step` of a reward, and of every reward that it holds, each once."""
    for part in scorers(reward).values():
        if isinstance(part, Reward):
            part.at_step(step, total)


def policy_work(parts: Iterable[Reward | Relevance | OnlineAlgorithm], drawn: DrawnShape) -> PolicyWork | None:
    """What components, and the rewards and relevances that they hold, ask of the policy together; None when it is not known."""
    total = PolicyWork()
    for component in parts:
        for part in [component] if isinstance(component, OnlineAlgorithm) else scorers(component).values():
            work = part.policy_work(drawn)
            if work is None:
                return None
            total += work
    return total


def check_scorer(
    scorer: Reward | Relevance, known: Collection[str] = ROLLOUT_NEEDS, *, field: str, before_setup: bool = True
) -> None:
    """`check_needs` of a reward or a relevance, and of the rewards and relevances that it holds.

    known: less than `ROLLOUT_NEEDS` in a stage that does not draw the responses that it scores.
    """
    inner_first = sorted(scorers(scorer).items(), key=lambda each: -len(each[0]))
    for path, part in inner_first:  # the needs of an outer one contain theirs
        where = ".".join(map(str, (field, *path)))
        needs = part.needs_before_setup() if before_setup else part.needs()
        for need in sorted(needs & ROLLOUT_NEEDS - set(known)):
            kind, name = name_of(part)
            raise UnknownNeed(
                f'{where}: the {kind} {name} needs "{need}" of the responses, which this stage reads and does not draw: use {name} in '
                "a stage `rl` or `evaluate`"
            )
        check_needs(part, needs, known, where)


@kind("online_algorithm")
class OnlineAlgorithm(Component, ABC):
    """A policy-gradient method on the policy's own samples."""

    critic: ClassVar[bool] = False
    """Can it train a value function beside the policy? See `uses_critic`."""
    min_per_prompt: ClassVar[int] = 1
    """The lowest number of responses per prompt that it works with."""
    reads_token_rewards: ClassVar[bool] = True
    """Does it read `Rewards.token`? False of an algorithm that takes one reward per response."""

    epochs: int = Field(1, ge=1, le=1_000)
    """Passes over each rollout."""

    def uses_critic(self) -> bool:
        """Is a value function trained beside the policy?"""
        return self.critic

    def needs(self) -> frozenset[str]:
        """Fields of `Rollout` to fill, of `ROLLOUT_NEEDS`."""
        return frozenset({"old_logp"})

    def can_skip_old_logp(self) -> bool:
        """Can it do without `old_logp` when an iteration is one optimizer step?

        The policy is then the one that sampled, so `loss` can take its own log-probabilities, detached: the ratio is 1. If
        so, `rollout.old_logp` is not computed: the column "old_logp" is missing (unless the reward needs it), and `loss`
        reports "entropy", and "kl" if it has "ref_logp", for the responses of the micro-batch.
        """
        return False

    def reads(self) -> frozenset[str]:
        """Optional fields and `columns` of `Rewards` that it requires: a recipe whose reward does not fill them is refused."""
        return frozenset()

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """At most what `advantages` asks of the policy for so many responses, for `fgrl plan`; None when it is not known.

        Every process computes the advantages of all responses, but only the rewards of its own share: expensive questions to
        the policy belong in a reward.
        """
        return None if "policy" in self.needs() else PolicyWork()

    @abstractmethod
    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages: ...

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]: ...

    def state_dict(self) -> dict[str, Any]:
        """State that changes while training (an adaptive KL coefficient): numbers, text and tensors, in mappings or lists.

        Checkpoints are read without unpickling anything else.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


ANSWER_NEEDS = frozenset({"logp", "ref_logp", "kl", "offsets"})
"""What metrics may ask of an answer."""


Better = Literal["higher", "lower"]
Purpose = Literal["goal", "reward", "symptom"]


class Meaning(NamedTuple):
    """What a number of a metric tells, for the report."""

    words: str
    """In plain words, as in "share of answers that satisfy the rule". `{number}` stands for the number's name."""
    better: Better | None = None
    """Which side is better; None: neither, as of a length."""
    even: float | None = None
    """Of a number that compares two models by itself: its value when they are equally good, as 0.5 of a win rate."""


def meaning_in(meanings: Mapping[str, Meaning], number: str) -> Meaning | None:
    """The meaning of the number's name, or else of the first pattern (of shell wildcards) that fits it; None where none does."""
    fitting = (meaning for pattern, meaning in meanings.items() if fnmatchcase(number, pattern))
    meaning = meanings.get(number) or next(fitting, None)
    shown = number.replace(":", ": ").replace("_", " ")
    return meaning and meaning._replace(words=meaning.words.replace("{number}", shown))


@kind("metric")
class Metric(Asker, ABC):
    """Measures answers of several models to the same prompts."""

    purpose: ClassVar[Purpose] = "goal"
    """`goal`: what the training is for. `reward`: numbers of a reward, which the training may exploit. `symptom`: numbers that
    show side effects, as lengths. The report's first screen reads it."""
    meanings: ClassVar[Mapping[str, Meaning]] = {}
    """What the numbers mean and which side is better, by number or by a pattern (`*`). The report draws conclusions only from
    numbers that are named here."""

    def meaning(self, number: str) -> Meaning | None:
        """What a number means; None: not declared."""
        return meaning_in(self.meanings, number)

    def verdict(self, answer: Any) -> tuple[bool | None, list[Span]] | None:
        """Whether one answer (`fgrl.evaluation.answer.Answer`) passes, None where that could not be decided, and the spans that
        break it. None: the metric does not decide about single answers, or not cheaply enough to do it twice."""
        return None

    @abstractmethod
    def measure(self, answers: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> dict[str, Any]:
        """`{metric: {model: {number: estimate}, "differences": {model: {number: estimate}}}}`, JSON-ready.

        `answers` are `fgrl.evaluation.answer.Answer`s by model; an estimate is a `fgrl.evaluation.statistics.Estimate` as a
        dict; differences are to `baseline`, paired by prompt. Beside the models "about" may say, as text, how the numbers
        came about.
        """

    def asks(self, given: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> list[Request]:
        """The requests of `measure(given, baseline=baseline)`, before any question is retried."""
        return []

    def asks_at_most(self, expected: ToDraw) -> Sequence[AtMost] | None:
        """A bound on the requests about answers that are not drawn yet; None when it is not known."""
        return None

    def needs(self) -> frozenset[str]:
        """What it reads of an answer beyond its text: of `ANSWER_NEEDS`."""
        return frozenset()

    def why_not_remeasured(self) -> str:
        """Why recorded answers are not enough to measure again, as in "it asks a judge"; empty when they are."""
        return "it measures in its own way"

    def check_rewards(self, names: Collection[str]) -> None:
        """Raise ValueError when the metric reads a reward that is not among those of the evaluation (`names`)."""

    def check_models(self, names: Collection[str], baseline: str) -> None:
        """Raise ValueError when the metric compares with a model that is not among those of the evaluation (`names`)."""

    def check_answers(self, per_prompt: int) -> None:
        """Raise ValueError when the metric needs more than so many answers to each prompt."""

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` when answers to these prompts cannot be measured. Called after `setup`, before any is drawn."""


Ended = Callable[[Sequence[int]], bool]
"""Is a response of these token ids complete, although it has no end-of-sequence token?"""


@kind("engine")
class Engine(Component, ABC):
    """Draws responses from a model."""

    @abstractmethod
    def generate(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        seed: int,
        rows: Sequence[int],
        ended: Ended | None = None,
    ) -> list[list[int]]:
        """Token ids of each response, with its end-of-sequence token. Row `i` is drawn from the random stream
        (`seed`, `rows[i]`), so neither the order nor the batching of rows changes the responses.

        ended: also end a response behind the first token with which this is true of all its ids; it is asked behind every
        token, and changes nothing before it. Passed only where it is needed.

        Each pass of `model` is a place where a run can stop; an engine that computes elsewhere calls `fgrl.stops.point()` between steps.
        """

    def copies_weights(self) -> bool:
        """Does it keep a second copy of the model's weights while sampling? `fgrl plan` counts it."""
        return False


def default_engine() -> Engine:
    """Transformers, in this process."""
    return build(Engine, "hf")


@kind("stage")
class Stage(Component, ABC):
    """One step of a recipe."""

    makes: ClassVar[type[Product]]
    uses_torch: ClassVar[bool] = True
    """False spares a stage the seconds that loading torch takes, just to seed it."""

    def setup(self, run: Run) -> None:
        """Set up every component that a field of the stage holds; each of these sets up its own parts."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            for part in parts:
                if isinstance(part, Component):
                    part.setup(run)

    def estimate(self, peek: Peek) -> dict[str, Any]:
        """What `fgrl plan` says the stage will take, JSON-ready by topic: "parameters", "memory", "calls".

        Raises `fgrl.errors.NotYet` (from `peek.path`) where that depends on a stage that has not run.
        """
        return {}

    def warnings(self) -> list[str]:
        """What the stage will ignore or do otherwise than its settings suggest; `validate`, `plan` and `run` print it."""
        return []

    def expects(self, peek: Peek) -> Expected | None:
        """At most how many samples the stage makes, known without running anything; None when that is not known."""
        return None

    def processes(self) -> int:
        """How many processes train together, one a device; a stage with several is started in a separate process."""
        return 1

    def accelerator(self) -> Accelerator:
        """Where `run.model` puts models: "cpu", "gpu", or "auto" for a GPU when there is one."""
        return "auto"

    @classmethod
    def computes(cls, settings: Mapping[str, Any], path: Key) -> tuple[Accelerator, bool]:
        """Return what decides `auto` at a path of settings as a recipe has them: the stage's accelerator, and whether the path
        concerns a model all of whose weights are trained in float32."""
        return "auto", False

    def temporary(self) -> Sequence[str]:
        """Files in `run.dir` that serve to resume, and are removed once the stage has finished."""
        return ()

    def trains(self) -> ModelSpec | None:
        """The model that the stage's checkpoint is a trained version of, for `fgrl plan`; None when it makes none."""
        return None

    def check_step(self, step: int) -> None:
        """Raise ValueError where the stage's product will not contain the model of this step (`ModelSpec.step`)."""
        raise ValueError("it keeps no models of earlier steps; rl and finetune do, with evaluate: {keep: all}")

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        """Where the stage has models, and the head that each must have: "lm", "scalar" or "token"."""
        return {}

    def checkpoint_head(self) -> str:
        """The head of the model in the stage's checkpoint."""
        return "lm"

    def responses(self) -> int | None:
        """How many responses each sample that the stage makes has; None when that is not known."""
        return None

    def misfits(self, stages: Mapping[str, Stage]) -> Iterator[tuple[Key, str]]:
        """Mistakes that only show beside the other `stages` of the recipe: where in this stage, and what is wrong."""
        for path, (spec, head) in self.heads().items():
            if spec.head not in (None, head):
                yield (*path, "head"), f"wants {head} or null here, got {spec.head}"
            made = stages[spec.base.stage].checkpoint_head() if isinstance(spec.base, Ref) else head
            if head == "lm" != made:
                message = f"{spec.base!r} is a model with a {made} head, which has no next-token logits"
                yield (*path, "base"), f"{message}: name a language model"
        for path, part in walk(self):
            if isinstance(part, ModelSpec) and part.step is not None and isinstance(part.base, Ref):
                try:
                    stages[part.base.stage].check_step(part.step)
                except ValueError as why:
                    yield (*path, "step"), f'stage "{part.base.stage}": {why}'

    def inspect(self, run: Any, count: int) -> Iterator[Any]:
        """`count` samples as the model sees them (`fgrl.report.terminal.Annotated`), for `fgrl inspect`."""
        raise NotImplementedError(f"{name_of(self)[1]} has no samples to show")

    @classmethod
    def can_inspect(cls) -> bool:
        """Does the stage have an `inspect` of its own?"""
        return cls.inspect is not Stage.inspect

    @abstractmethod
    def run(self, run: Any) -> Mapping[str, Any] | None:
        """Do the work: write the product to `run.out`. Returns what is worth saying in the summary."""
