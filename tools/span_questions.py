"""Make the small recipe's documents and queries from its questions about nouns: a few of WordNet's glosses, and a query that needs them.

    python tools/span_questions.py recipes/small

Reads `definitions.jsonl` (see `tools/wordnet.py`) and writes `span_questions.jsonl`: `{"id", "document", "query", "domain"}`. The
document holds the glosses of a noun and of its neighbours; the query asks for what relates two of them, in one of a few forms that
each word gets by its place in the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

FORMS = (
    "Explain what {word} means and how it is related to {other}.",
    "What is the difference between {word} and {other}? Explain it in a few sentences.",
    "A friend confuses {word} with {other}. What would you tell them?",
    "Describe {word} to somebody who does not know the word, and say what it has to do with {other}.",
)
"""What the queries ask; domains are named after their place."""
DOMAINS = ("relate", "distinguish", "advise", "describe")
MOST = 400
"""Lines of the file."""


def question(line: dict[str, object], number: int) -> dict[str, str] | None:
    """The document and the query of a noun; None where it has no neighbour."""
    glosses = [str(gloss).partition(": ") for gloss in line["context"]]  # type: ignore[attr-defined]
    word = str(line["question"]).split('"')[1]
    other = next((name for name, _colon, _gloss in glosses if name != word), None)
    if other is None or word not in [name for name, _colon, _gloss in glosses]:
        return None
    document = "\n".join(f"{name[:1].upper()}{name[1:]}: {gloss}." for name, _colon, gloss in glosses)
    form = number % len(FORMS)
    query = FORMS[form].format(word=f'"{word}"', other=f'"{other}"')
    return {"id": str(line["id"]), "document": document, "query": query, "domain": DOMAINS[form]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where definitions.jsonl is")
    folder = parser.parse_args().folder
    lines = [json.loads(line) for line in (folder / "definitions.jsonl").open(encoding="utf-8")]
    made = [row for number, line in enumerate(lines) if (row := question(line, number)) is not None][:MOST]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    (folder / "span_questions.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(made)} documents with a query")


if __name__ == "__main__":
    main()
