"""Reward functions with the signature that TRL documents, written anew from their description.

Kinds that TRL's documentation, `trl.rewards` and published examples of GRPO have: accuracy, formats, lengths, repetition, tags, several
tasks, schedules, async judges, logging.
"""

import asyncio
import functools
import math
import re

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def _contents(completions):
    return [completion[0]["content"] for completion in completions]


def accuracy(completions, solution, log_extra=None, **kwargs) -> list[float | None]:
    """1 where the last boxed expression is the solution, 0 elsewhere; does not apply without a solution."""
    found = [BOXED.findall(content) for content in _contents(completions)]
    if log_extra is not None:
        log_extra("boxed", [own[-1] if own else "[nothing]" for own in found])
    return [
        None if gold is None else float(bool(own) and own[-1] == gold)
        for own, gold in zip(found, solution, strict=True)
    ]


def reasoning_accuracy(completions, solution, reasoning_delimiters=("</think>",), **kwargs):
    """`accuracy` of what follows the reasoning; 0 where the reasoning does not end."""
    rewards = []
    for content, gold in zip(_contents(completions), solution, strict=True):
        delimiter = next((mark for mark in reasoning_delimiters if mark in content), None)
        if delimiter is None:
            rewards.append(0.0)
        else:
            rewards += accuracy([[{"content": content.split(delimiter)[-1]}]], [gold])
    return rewards


def think_format(completions, **kwargs) -> list[float]:
    """1 where one reasoning block opens the completion."""
    return [
        1.0 if re.match(r"^<think>(?!.*<think>).*?</think>.*$", content, re.DOTALL) else 0.0
        for content in _contents(completions)
    ]


def answer_format(completions, **kwargs):
    """1 for <think>...</think><answer>...</answer> and nothing else."""
    pattern = r"<think>.*?</think>\s*<answer>.*?</answer>"
    return [1.0 if re.fullmatch(pattern, content.strip(), re.DOTALL) else 0.0 for content in _contents(completions)]


class CosineScaled:
    """Short right answers and long wrong ones earn more, along a cosine of the length in tokens."""

    __name__ = "cosine_scaled"

    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, completions, solution, completion_ids, **kwargs):
        rewards = []
        for right, ids in zip(accuracy(completions, solution), completion_ids, strict=True):
            if right is None:
                rewards.append(None)
                continue
            low, high = (0.5, 1.0) if right else (-0.5, -1.0)
            rewards.append(low + 0.5 * (high - low) * (1 + math.cos(math.pi * min(len(ids) / self.max_len, 1.0))))
        return rewards


cosine_scaled = CosineScaled(max_len=40)


def repetition_penalty(completion_ids, ngram_size=3, max_penalty=-1.0, **kwargs) -> list[float]:
    """The share of token n-grams that were there before, as a penalty."""
    rewards = []
    for ids in completion_ids:
        grams = [tuple(ids[i : i + ngram_size]) for i in range(len(ids) - ngram_size + 1)]
        rewards.append(max_penalty * (1 - len(set(grams)) / len(grams)) if grams else 0.0)
    return rewards


def _overlong(completion_ids, most, cache, **kwargs):
    """0 up to a length, then down to -1 linearly."""
    return [min(0.0, max(-1.0, (most - cache - len(ids)) / cache)) for ids in completion_ids]


soft_overlong = functools.partial(_overlong, most=30, cache=20)


def close_to_twenty(completions, **kwargs):
    """Completions of about twenty characters."""
    return [-abs(20 - len(content)) for content in _contents(completions)]


def unique_letters(completions, **kwargs):
    """How many different letters a completion has."""
    return [len({letter for letter in content if letter.isalpha()}) for content in _contents(completions)]


def unique_characters(prompts, completions, **kwargs):
    """How many different characters the prompt and the completion have together."""
    asked = [prompt[-1]["content"] for prompt in prompts]
    return [float(len(set(prompt + content))) for prompt, content in zip(asked, _contents(completions), strict=True)]


def ground_truth(completions, ground_truth, **kwargs):
    """Whether what is boxed is the ground truth."""
    matches = [BOXED.search(content) for content in _contents(completions)]
    return [1.0 if match and match[1] == truth else 0.0 for match, truth in zip(matches, ground_truth, strict=True)]


def math_task(prompts, completions, task, **kwargs):
    """Applies to prompts of mathematics alone."""
    return [
        (1.0 if any(letter.isdigit() for letter in content) else -1.0) if kind == "math" else None
        for content, kind in zip(_contents(completions), task, strict=True)
    ]


def coding_task(prompts, completions, task, **kwargs):
    """Applies to prompts of programming alone."""
    return [
        (1.0 if "def " in content else -1.0) if kind == "code" else None
        for content, kind in zip(_contents(completions), task, strict=True)
    ]


def _in_answer_tags(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def xml_correctness(prompts, completions, answer, **kwargs) -> list[float]:
    """2 where the text between answer tags is the answer."""
    return [
        2.0 if _in_answer_tags(content) == right else 0.0
        for content, right in zip(_contents(completions), answer, strict=True)
    ]


def integer_answer(completions, **kwargs) -> list[float]:
    """0.5 for a whole number between answer tags."""
    return [0.5 if _in_answer_tags(content).isdigit() else 0.0 for content in _contents(completions)]


def strict_format(completions, **kwargs) -> list[float]:
    """0.5 for tags on lines of their own."""
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>\n?$"
    return [0.5 if re.match(pattern, content, re.DOTALL) else 0.0 for content in _contents(completions)]


def soft_format(completions, **kwargs) -> list[float]:
    """0.5 for tags anywhere at the beginning."""
    pattern = r"<think>.*?</think>\s*<answer>.*?</answer>"
    return [0.5 if re.match(pattern, content, re.DOTALL) else 0.0 for content in _contents(completions)]


def tag_count(completions, **kwargs) -> list[float]:
    """A quarter for each tag that is there once."""
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    return [sum(0.25 for tag in tags if content.count(tag) == 1) for content in _contents(completions)]


def tag_count_and_tail(completions, **kwargs) -> list[float]:
    """An eighth for each tag, less what follows the last one."""
    rewards = []
    for content in _contents(completions):
        reward = 0.125 * sum(content.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
        tail = content.split("</answer>")[-1] if "</answer>" in content else ""
        rewards.append(reward - 0.001 * len(tail))
    return rewards


def token_length(completions, completion_ids, **kwargs):
    """The length in tokens, as numbers of NumPy."""
    import numpy

    return numpy.array([len(ids) for ids in completion_ids], dtype="float32")


def on_schedule(completions, trainer_state, **kwargs):
    """Length counts in the second half of the training."""
    late = trainer_state.global_step / trainer_state.max_steps > 0.5
    return [len(content) / 10 if late else 1.0 for content in _contents(completions)]


async def judged(prompts, completions, **kwargs):
    """A judge that answers after a while."""

    async def verdict(content):
        await asyncio.sleep(0)
        return float(content.endswith("."))

    return await asyncio.gather(*(verdict(content) for content in _contents(completions)))


def with_metric(completions, log_metric=None, **kwargs):
    """Logs its own accuracy."""
    rewards = [float("answer" in content) for content in _contents(completions)]
    if log_metric is not None:
        log_metric("with_answer", sum(rewards) / len(rewards))
    return rewards
