"""Make the tasks and the demonstrations of recipes/small/agent.yaml: `python tools/agent.py recipes/small`.

A task is a question that needs a tool, and its answer. A demonstration is one turn of a conversation that solves one: the prompt is
everything before it. The words are those of definitions.jsonl (`tools/wordnet.py`).
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recipes" / "small"))

import agent_tools
from transformers.utils import get_json_schema

from fgrl.rollouts.text import with_tools
from fgrl.types import Message

TASKS, DEMONSTRATIONS = 648, 48
"""How many tasks there are, and how many of the first ones are demonstrated."""


def tasks(draw: random.Random) -> list[dict[str, str]]:
    """Every second one is a sum, the others ask for the meaning of a word."""
    words = sorted(agent_tools.meanings())
    draw.shuffle(words)
    made = []
    for number in range(TASKS):
        if number % 2:
            a, sign, b = draw.randint(12, 99), draw.choice("+-*"), draw.randint(12, 99)
            ask = {"+": f"What is {a} plus {b}?", "-": f"What is {a} minus {b}?", "*": f"What is {a} times {b}?"}[sign]
            tool, argument = "calculate", {"expression": f"{a} {sign} {b}"}
        else:
            ask = f'What does the word "{words[number]}" mean?'
            tool, argument = "lookup", {"word": words[number]}
        answer = getattr(agent_tools, tool)(**argument)
        call = json.dumps({"name": tool, "arguments": argument})
        made.append(
            {"id": f"{tool}-{number}", "prompt": ask, "answer": answer, "call": f"<tool_call>{call}</tool_call>"}
        )
    return made


def demonstrated(task: dict[str, str]) -> list[dict[str, object]]:
    """The two turns that solve a task."""
    tools = [get_json_schema(tool) for tool in (agent_tools.lookup, agent_tools.calculate)]
    before = [each.model_dump() for each in with_tools([Message(role="user", content=task["prompt"])], tools)]
    after = [*before, {"role": "assistant", "content": task["call"]}, {"role": "tool", "content": task["answer"]}]
    return [
        {"id": f"{task['id']}-call", "prompt": before, "reference": task["call"]},
        {"id": f"{task['id']}-answer", "prompt": after, "reference": task["answer"]},
    ]


def main(folder: Path) -> None:
    made = tasks(random.Random(0))
    demonstrations = [turn for task in made[:DEMONSTRATIONS] for turn in demonstrated(task)]
    asked = [
        {"id": task["id"], "prompt": task["prompt"], "reference": task["answer"]} for task in made[DEMONSTRATIONS:]
    ]
    for name, lines in {"agent_demonstrations": demonstrations, "agent_tasks": asked}.items():
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
