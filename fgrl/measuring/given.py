"""Existing answers, matched to the prompts of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fgrl.base.errors import DataError
from fgrl.measuring.answer import Answer, FollowUp
from fgrl.types import Response, Sample


def answers(name: str, samples: Iterable[Sample], prompts: Sequence[Sample], *, cut: bool = False) -> list[Answer]:
    """Return the samples' responses as answers, in the prompts' order; several answers to one prompt keep their own
    order.

    cut: True if the prompts are only the first of those that the recipe reads; then answers to others are skipped.

    Raises `DataError` if a prompt has no answer, an answer has no prompt, or a sample has no response.
    """
    by_prompt: dict[str, list[Sample]] = {prompt.id: [] for prompt in prompts}
    if len(by_prompt) < len(prompts):
        raise DataError(f"given.{name}: two prompts share an id, so answers cannot be matched to them")
    extra: list[str] = []
    for sample in samples:
        if sample.chosen_response is None:
            raise DataError(f"given.{name}: sample {sample.id} has no `response`: map its column as `columns.response`")
        if sample.id in by_prompt:
            by_prompt[sample.id].append(sample)
        else:
            extra.append(sample.id)
    missing = [id for id, group in by_prompt.items() if not group]
    for ids, what in ((missing, "no answer to"), (extra if not cut else [], "answers to what is not asked, the")):
        if ids:
            shown = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
            raise DataError(
                f"given.{name}: {what} prompt{'s' * (len(ids) > 1)} {shown}. Answers belong to the prompt of the same id: "
                "read both with the same ids, `skip` and `limit`"
            )
    return [_answer(name, prompt, sample) for prompt in prompts for sample in by_prompt[prompt.id]]


def _answer(name: str, prompt: Sample, sample: Sample) -> Answer:
    response = sample.chosen_response
    assert response is not None
    asked, later = follow_ups(prompt), sample.meta.get("later_responses", [])
    if len(later) < len(asked):
        raise DataError(f"given.{name}: sample {sample.id} has {len(later)} answers to {len(asked)} later turns")
    return Answer(
        model=name,
        sample=prompt_alone(prompt),
        response=response.model_copy(update={"finished": None}),
        follow_ups=[
            FollowUp(question=question, response=Response(text=text))
            for question, text in zip(asked, later, strict=False)
        ],
    )


def prompt_alone(sample: Sample) -> Sample:
    """Return the prompt in the form that an `Answer` stores: without responses; a chat of a single turn is its text."""
    prompt = sample.prompt
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0].content
    return sample.model_copy(update={"prompt": prompt, "responses": [], "chosen": None, "verdicts": None})


def shortened(prompt: Sample, turns: int) -> Sample:
    """Return the prompt with at most `turns` - 1 follow-ups."""
    asked = follow_ups(prompt)
    if len(asked) < turns:
        return prompt
    return prompt.model_copy(update={"meta": {**prompt.meta, "follow_ups": asked[: turns - 1]}})


def follow_ups(prompt: Sample) -> list[str]:
    """Return the questions after the first answer, turn by turn: `meta.follow_ups`."""
    questions = prompt.meta.get("follow_ups") or []
    if not isinstance(questions, list) or not all(isinstance(text, str) for text in questions):
        raise DataError(f"prompt {prompt.id}: `follow_ups` should be a list of texts, one per turn")
    return questions
