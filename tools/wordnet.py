"""Make the files of the small recipes from WordNet 3.0: definitions and kinds of nouns, opposites of adjectives.

    python tools/wordnet.py /usr/share/wordnet recipes/small

The folder is what Debian's package `wordnet-base` installs (`make wordnet` fetches it without installing). Each line is
`{"id", "question", "answers", "context"}`; the context holds glosses of the word and of its neighbours, the right one
among them, in a random order. Lines of `kinds.jsonl` and `antonyms.jsonl` are `{"id", "word", "right"}`. WordNet's licence, which allows copies with its
notice, goes beside the files.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FILES = ("definitions.jsonl", "opposites.jsonl", "kinds.jsonl", "antonyms.jsonl")
WORD = re.compile(r"[a-z]{3,14}")
KINDS = {
    "05": "animal", "06": "object", "08": "body", "12": "feeling", "13": "food", "15": "place", "18": "person", "20": "plant",
    "27": "material", "28": "time",
}  # fmt: skip
"""Numbers of WordNet's lexicographer files, and what `kinds.jsonl` calls what is in them."""
OF_A_KIND, ANTONYMS, LONGEST_OF_A_LIST = 60, 200, 10
"""Words of each kind at most, words of `antonyms.jsonl`, and letters of the words of both."""
MOSTLY = 0.9
"""Share of a word's uses in tagged texts that are of its kind, at least."""
UNFIT = re.compile(r"slur|offensive|obscene|disparag|derogatory|vulgar")
"""In a definition: a word for no example."""


@dataclass
class Synset:
    """A meaning, the words that have it, and its neighbours."""

    key: str
    words: list[str]
    definition: str
    examples: list[str]
    pointers: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind ("@" hypernym, "!" antonym ...), key of the other synset, numbers of the two words (hexadecimal)."""


def synsets(file: Path) -> Iterator[Synset]:
    """Read a data file (format: wndb(5WN))."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            continue
        head, _, gloss = line.partition(" | ")
        parts = head.split()
        count = int(parts[3], 16)
        words = [re.sub(r"\(.*\)$", "", word).replace("_", " ") for word in parts[4 : 4 + 2 * count : 2]]
        at = 4 + 2 * count
        pointers = [(parts[i], parts[i + 1], parts[i + 3]) for i in range(at + 1, at + 1 + 4 * int(parts[at]), 4)]
        examples = re.findall(r'"([^"]+)"', gloss)
        definition = gloss.split('; "')[0].strip().rstrip(";")
        yield Synset(parts[0], words, definition, examples, pointers)


def first_senses(file: Path) -> dict[str, str]:
    """The synset of each word's most frequent sense, for words that WordNet's tagged texts use."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            parts = line.split()
            tagged = int(parts[4 + int(parts[3]) + 1])
            if tagged and WORD.fullmatch(parts[0]):
                found[parts[0]] = parts[4 + int(parts[3]) + 2]
    return found


def definitions(folder: Path, draw: random.Random) -> Iterator[dict[str, object]]:
    """What does this noun mean?"""
    known = {one.key: one for one in synsets(folder / "data.noun")}
    for word, key in first_senses(folder / "index.noun").items():
        one = known[key]
        if not 4 <= len(one.definition.split()) <= 20 or re.search(rf"\b{word}", one.definition):
            continue
        parents = [known[other] for kind, other, _ in one.pointers if kind == "@" and other in known]
        sisters = [
            known[other] for parent in parents for kind, other, _ in parent.pointers if kind == "~" and other in known
        ]
        draw.shuffle(sisters)
        others = [other for other in parents[:1] + sisters if other.key != key and word not in other.words][:2]
        passages = [f"{word}: {one.definition}"] + [f"{other.words[0]}: {other.definition}" for other in others]
        draw.shuffle(passages)
        yield {
            "id": f"n{key}",
            "question": f'What is "{word}", in ten words or fewer?',
            "answers": [one.definition],
            "context": passages,
        }


def opposites(folder: Path, draw: random.Random) -> Iterator[dict[str, object]]:
    """What is the opposite of this adjective?"""
    known = {one.key: one for one in synsets(folder / "data.adj")}
    for word, key in first_senses(folder / "index.adj").items():
        one = known[key]
        if word not in one.words:
            continue
        place = f"{one.words.index(word) + 1:02x}"
        found = [
            (known[other], known[other].words[int(numbers[2:], 16) - 1])
            for kind, other, numbers in one.pointers
            if kind == "!" and numbers[:2] == place
        ]
        if not found:
            continue
        passages = [f"{word}: {one.definition}"] + [f"{name}: {other.definition}" for other, name in found]
        passages += one.examples[:1]
        draw.shuffle(passages)
        yield {
            "id": f"a{key}",
            "question": f'What is the opposite of "{word}", in one word?',
            "answers": [name for _other, name in found],
            "context": passages,
        }


def uses(folder: Path, parts: str) -> dict[str, Counter[str]]:
    """How often tagged texts use a word of these parts of speech (1 nouns, 3 and 5 adjectives), by lexicographer file, most used first."""
    found: dict[str, Counter[str]] = {}
    for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines():
        sense, _number, count = line.split()
        word, _, rest = sense.partition("%")
        if rest[0] in parts and WORD.fullmatch(word) and len(word) <= LONGEST_OF_A_LIST:
            found.setdefault(word, Counter())[rest[2:4]] += int(count)
    return dict(sorted(found.items(), key=lambda each: (-each[1].total(), each[0])))


def kinds(folder: Path) -> Iterator[dict[str, object]]:
    """Which kind of thing is this? Words that tagged texts use for one kind."""
    unfit = {
        word.lower()
        for one in synsets(folder / "data.noun")
        for word in one.words
        if not word.islower() or UNFIT.search(one.definition)
    }
    found: dict[str, list[str]] = {number: [] for number in KINDS}
    for word, files in uses(folder, "1").items():
        number, count = files.most_common(1)[0]
        if number in KINDS and word not in unfit and count >= MOSTLY * files.total():
            found[number].append(word)
    for number, words in found.items():
        for word in words[:OF_A_KIND]:
            yield {"id": f"k-{word}", "word": word, "right": [KINDS[number]]}


def antonyms(folder: Path) -> Iterator[dict[str, object]]:
    """Opposites of the adjectives that tagged texts use most often, and what means the same as an opposite."""
    known = {one.key: one for one in synsets(folder / "data.adj")}
    direct: dict[str, list[str]] = {}
    alike: dict[str, list[str]] = {}
    for one in known.values():
        for kind, other, numbers in one.pointers:
            if kind == "!":
                word, opposites = one.words[int(numbers[:2], 16) - 1], known[other].words
                direct.setdefault(word, []).append(opposites[int(numbers[2:], 16) - 1])
                alike.setdefault(word, []).extend(opposites)
    for word in [word for word in uses(folder, "35") if word in direct][:ANTONYMS]:
        right = dict.fromkeys([*direct[word], *sorted(alike[word])])
        yield {"id": f"a-{word}", "word": word, "right": [each for each in right if WORD.fullmatch(each)]}


def write(path: Path, rows: Iterator[dict[str, object]], count: int, draw: random.Random) -> None:
    chosen = sorted(rows, key=lambda row: str(row["id"]))
    seen: set[object] = set()
    chosen = [row for row in chosen if row["id"] not in seen and not seen.add(row["id"])]  # type: ignore[func-returns-value]
    draw.shuffle(chosen)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen[:count])
    print(f"{path}: {min(count, len(chosen))} of {len(chosen)} lines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wordnet", type=Path, help="folder with data.noun, index.noun, data.adj, index.adj")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    draw = random.Random(0)
    makers = (
        definitions(given.wordnet, draw),
        opposites(given.wordnet, draw),
        kinds(given.wordnet),
        antonyms(given.wordnet),
    )
    for name, rows, count in zip(FILES, makers, (1400, 400, 600, 200), strict=True):
        write(given.out / name, rows, count, draw)
    notice = next(given.wordnet.glob("data.noun")).read_text(encoding="utf-8").split("\n", 29)[:29]
    text = "\n".join(re.sub(r"^  \d+ ?", "", line).rstrip() for line in notice)
    (given.out / "WORDNET-LICENSE.txt").write_text(
        f"{', '.join(FILES)} are made of WordNet 3.0, whose notice is:\n\n{text}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
