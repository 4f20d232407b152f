"""One of two processes that ask together over gloo: `python asking_rank.py RANK WORLD FOLDER MODEL URL`.

Writes what it got to `FOLDER/rank-RANK.json`. With a world of 1 it is the process that everything is compared with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from fgrl.base.errors import OverBudget
from fgrl.components.clients.local import Local
from fgrl.components.clients.openai import OpenAI
from fgrl.components.judges.llm import LLMJudge
from fgrl.experiments.pipeline.run import Run
from fgrl.feedback.llm.asking import Question, ask
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Criterion, Message, Request, Sample

WORDS = ["the", "river", "runs", "past", "old", "mills", "and", "lamps", "where", "birds", "sing", "of", "bread"]
PROMPT = Path(__file__).parents[2] / "prompts" / "judge_criterion.txt"


def requests(count: int, **more: Any) -> list[Request]:
    texts = [" ".join(WORDS[n % 7 : n % 7 + 1 + n % 5]) + f" {n}" for n in range(count)]
    return [Request(messages=[Message(role="user", content=text)], **more) for text in texts]


def main(rank: int, world: int, folder: Path, model: str, url: str) -> None:
    torch.set_num_threads(1)
    if world > 1:
        where = f"file://{folder}/meet"
        distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=world)

    def run(stage: str) -> Run:
        (folder / stage).mkdir(parents=True, exist_ok=True)
        return Run(stage, folder / stage, cache=folder / "cache", rank=rank)

    def local(stage: str, **fields: Any) -> Local:
        client = Local(**{"model": ModelSpec(base=model), "max_tokens": 6, "batch_size": 2, **fields})
        client.setup(run(stage))
        return client

    seen: dict[str, Any] = {}
    drew: list[str] = []
    answer_share = Local.answer_share
    Local.answer_share = lambda self, work: (  # type: ignore[method-assign]
        drew.extend(prompt.key for batch in work for prompt in batch), answer_share(self, work),
    )[1]  # fmt: skip

    # 1. a model of this process, greedy and drawn; a second time from the cache
    client = local("one", temperature=1.0)
    mixed = [*requests(9), *requests(3, temperature=0.0), *requests(4, max_tokens=1, logprobs=3), *requests(2)]
    seen["local"] = [answer.model_dump() for answer in client.complete(mixed)]
    seen["drew"], seen["counts"] = list(drew), client.counts()
    seen["again"] = [answer.text for answer in local("two", temperature=1.0).complete(mixed)]
    seen["drew twice"] = len(drew) - len(seen["drew"])
    # 2. a limit, in the middle of a batch of all ranks
    limited = local("three", max_calls=3, seed=1)
    try:
        limited.complete(requests(8))
    except OverBudget as problem:
        seen["over"] = str(problem)
    # 3. an endpoint, with a question that is retried
    endpoint = OpenAI(model="m", base_url=url, api_key_env=None)
    endpoint.setup(run("four"))
    asked = ask(endpoint, [Question(request, int) for request in requests(4)])
    seen["endpoint"] = [[answer.value, answer.tries, answer.failure] for answer in asked]
    seen["endpoint counts"] = endpoint.counts()
    # 4. a judge; each rank has responses of its own, one of them none
    judge = LLMJudge(client=endpoint, prompt=str(PROMPT))
    judge.setup(run("five"))
    sample, kind = Sample(id="s", prompt="?"), Criterion(text="Be kind.")
    cases = [(sample, f"lamp {n}", kind) for n in range(4)]
    seen["judge"] = [
        judge.decide(cases[rank::2] if world > 1 else cases),
        judge.decide(cases[:0] if rank else cases[:1]),
    ]
    seen["judge counts"] = judge.counts()
    # 5. different questions
    if world > 1:
        try:
            client.complete(requests(2 + rank))
        except RuntimeError as problem:
            seen["different"] = str(problem)
    (folder / f"rank-{rank}.json").write_text(json.dumps(seen))
    # 6. a rank that does not come
    if world > 1 and rank == 0:
        try:
            client.complete(requests(1))
        except RuntimeError as problem:
            (folder / "alone.txt").write_text(str(problem))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
