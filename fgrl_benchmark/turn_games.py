"""Games of the credit benchmark over turns: the moves of a policy, the answers that it gets, and the value of each
state.

A turn costs `COST`, a conversation that succeeds earns 1 with its last turn, and a game ends after `Game.turns` turns.
The model that every training starts from imitates a player who makes one of the best moves in a share of the turns; the
value of a state, the expected further reward of this player, is known exactly.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

Split = Literal["train", "validation", "test"]
SPLITS: dict[Split, range] = {"train": range(0, 7), "validation": range(7, 8), "test": range(8, 10)}
"""Remainders of a game's number modulo 10, by split."""
COST = 0.1
"""Cost of a turn."""
SAME = 1e-9
"""Tolerance: values that differ by less are equal."""
_VALUES: dict[tuple[str, Hashable, int, float], float] = {}
NAMES = ["tom", "ann", "bob", "eve", "sam", "sue"]
FACTS = {
    "colour": ["red", "blue", "green", "pink", "gold", "grey"],
    "food": ["rice", "soup", "cake", "fish", "corn", "plum"],
}
NUMBERS = [str(number) for number in range(1, 14)]
WORDS = [
    "note", "ask", "friend", "look", "answer", "colour", "food", "number", "guess", "higher", "lower", "door", "key", "take", "open", "ring",
    "taken", "opened", "locked", "nothing", "what",
]  # fmt: skip


class Outcome(NamedTuple):
    """Outcome of a turn."""

    said: str
    """Text that the policy is told."""
    state: Any
    """The next state; None: the conversation is over."""
    success: bool = False


class Game(ABC):
    """One game. Its states contain everything that a player with perfect memory would know."""

    name: ClassVar[str]
    turns: ClassVar[int]
    """Number of turns after which the game is lost."""
    accuracy: ClassVar[float]
    """Share of turns in which the imitated player makes one of the best moves."""
    prompt: str
    first: Any
    """State in which the game begins."""
    answer: str | None = None
    """Answer that the policy has to find out; None if no single word is the answer."""

    @abstractmethod
    def moves(self, state: Any) -> list[str]:
        """Return the moves that a sensible player could make."""

    @abstractmethod
    def outcomes(self, state: Any, move: str) -> list[tuple[float, Outcome]]:
        """Return the possible outcomes with their probabilities, for a player who knows only the state."""

    @abstractmethod
    def happens(self, state: Any, move: str) -> Outcome:
        """Return the actual outcome."""

    @abstractmethod
    def score(self, state: Any) -> float:
        """Return the progress of a state, by a simple rule, from 0 to 1."""

    def like(self, state: Any) -> Hashable:
        """Return the part of a state that its value depends on."""
        return state

    def useless(self, move: str) -> bool:
        """Return True if a move never changes anything."""
        return False

    def weight(self, move: str) -> int:
        """Return the weight of a mistake: how often the player makes it, compared with others."""
        return 1

    def value(self, state: Any, left: int, accuracy: float | None = None) -> float:
        """Return the expected reward of the player from a state with this number of turns left. accuracy: accuracy of
        another player than that of the game.
        """
        accuracy = self.accuracy if accuracy is None else accuracy
        if state is None or not left:
            return 0.0
        key = self.name, self.like(state), left, accuracy
        if key not in _VALUES:
            _VALUES[key] = sum(
                chance * self.expected(state, left, move, accuracy)
                for move, chance in self.player(state, left, accuracy).items()
            )
        return _VALUES[key]

    def expected(self, state: Any, left: int, move: str, accuracy: float | None = None) -> float:
        """Return the expected reward of a move and of the player's moves after it."""
        return sum(
            chance * (then.success - COST + self.value(then.state, left - 1, accuracy))
            for chance, then in self.outcomes(state, move)
        )

    def player(self, state: Any, left: int, accuracy: float) -> dict[str, float]:
        """Return the moves of a player with their probabilities."""
        moves = self.moves(state)
        worth = [self.expected(state, left, move, 1.0) for move in moves]
        best = [move for move, each in zip(moves, worth, strict=True) if each > max(worth) - SAME]
        others = {move: self.weight(move) for move in moves if move not in best}
        share = accuracy if others else 1.0
        chances = {move: (1 - share) * weight / sum(others.values()) for move, weight in others.items()}
        return chances | dict.fromkeys(best, share / len(best))


class LookUp(Game):
    """A question, and a tool that looks facts up. The player has to look up zero, one or two facts before the
    answer.
    """

    name, turns, accuracy, first = "lookup", 5, 0.6, 0

    def __init__(self, number: int) -> None:
        draw = random.Random(f"lookup {number}")
        self.facts = {(kind, name): draw.choice(FACTS[kind]) for kind in FACTS for name in NAMES}
        self.facts |= {("friend", name): draw.choice([each for each in NAMES if each != name]) for name in NAMES}
        self.kind, noted, asked = draw.choice(list(FACTS)), *draw.sample(NAMES, 2)
        hops = draw.choice([0, 1, 2, 2])
        if hops == 0:
            asked = noted
        if self.facts["friend", asked] == noted:
            self.facts["friend", asked] = next(name for name in NAMES if name not in {asked, noted})
        of = self.facts["friend", asked] if hops == 2 else asked
        self.needed = [("friend", asked), (self.kind, of)][2 - hops :]
        self.answer = self.facts[self.kind, of]
        self.prompt = (
            f"note {self.kind} {noted} {self.facts[self.kind, noted]} ask {self.kind} {'friend ' * (hops == 2)}{asked}"
        )

    def moves(self, state: int) -> list[str]:
        return [f"look {kind} {name}" for kind, name in self.facts] + [f"answer {word}" for word in FACTS[self.kind]]

    def outcomes(self, state: int, move: str) -> list[tuple[float, Outcome]]:
        if state < len(self.needed) and move in (answers := [f"answer {word}" for word in FACTS[self.kind]]):
            right = 1 / len(answers)
            return [(right, Outcome("", None, True)), (1 - right, Outcome("", None))]
        return [(1.0, self.happens(state, move))]

    def happens(self, state: int, move: str) -> Outcome:
        match move.split():
            case ["answer", word]:
                return Outcome("", None, word == self.answer)
            case ["look", kind, name] if (kind, name) in self.facts:
                found = self.needed[state : state + 1] == [(kind, name)]
                return Outcome(self.facts[kind, name], state + found)
        return Outcome("what", state)

    def like(self, state: int) -> Hashable:
        return len(self.needed) - state

    def score(self, state: int) -> float:
        return state / 2


class Halves(Game):
    """A number to find. `guess M` asks whether it is above M; `answer M` commits.

    All splits have the same few ranges: a model that saw only some numbers of a range would learn that the numbers of
    another split are rare.
    """

    name, turns, accuracy = "halves", 5, 0.5
    size = 4
    """Number of values that it may have."""

    def __init__(self, number: int) -> None:
        draw = random.Random(f"halves {number}")
        low = draw.randint(1, len(NUMBERS) - self.size + 1)
        self.hidden = draw.randrange(low, low + self.size)
        self.first = (low, low + self.size - 1)
        self.answer = str(self.hidden)
        self.prompt = "number {} {}".format(*self.first)

    def moves(self, state: tuple[int, int]) -> list[str]:
        low, high = state
        return [f"guess {each}" for each in range(low, high)] + [f"answer {each}" for each in range(low, high + 1)]

    def like(self, state: tuple[int, int]) -> Hashable:
        return state[1] - state[0]

    def outcomes(self, state: tuple[int, int], move: str) -> list[tuple[float, Outcome]]:
        (low, high), found = state, self.read(move)
        if found is None:
            return [(1.0, self.happens(state, move))]
        said, guess = found
        if said == "answer":
            right = (low <= guess <= high) / (high - low + 1)
            return [(right, Outcome("", None, True)), (1 - right, Outcome("", None))]
        above = min(max(high - guess, 0) / (high - low + 1), 1.0)
        each = [(above, Outcome("higher", (max(low, guess + 1), high))), (1 - above, Outcome("lower", (low, min(high, guess))))]  # fmt: skip
        return [(chance, then) for chance, then in each if chance]

    def happens(self, state: tuple[int, int], move: str) -> Outcome:
        (low, high), found = state, self.read(move)
        if found is None:
            return Outcome("what", state)
        said, guess = found
        if said == "answer":
            return Outcome("", None, guess == self.hidden)
        if self.hidden > guess:
            return Outcome("higher", (max(low, guess + 1), high))
        return Outcome("lower", (low, min(high, guess)))

    def read(self, move: str) -> tuple[str, int] | None:
        """Return the action and the number of a move; None for any other text."""
        match move.split():
            case [("guess" | "answer") as said, word] if word in NUMBERS:
                return said, int(word)
        return None

    def score(self, state: tuple[int, int]) -> float:
        return 1 - (state[1] - state[0] + 1) / self.size


class Doors(Game):
    """Two doors, one behind the other, and keys, of which a player can hold one. `ring` does nothing."""

    name, turns, accuracy, first = "doors", 6, 0.6, (0, None)

    def __init__(self, number: int) -> None:
        draw = random.Random(f"doors {number}")
        self.keys = draw.sample(FACTS["colour"], 3)
        self.doors = draw.sample(self.keys, 2)
        self.prompt = f"door {' '.join(self.doors)} key {' '.join(self.keys)}"

    def moves(self, state: tuple[int, str | None]) -> list[str]:
        return [f"take {key}" for key in self.keys] + [f"open {door}" for door in self.doors] + ["ring"]

    def like(self, state: tuple[int, str | None]) -> Hashable:
        return state[0], state[1] == self.doors[state[0]]

    def outcomes(self, state: tuple[int, str | None], move: str) -> list[tuple[float, Outcome]]:
        return [(1.0, self.happens(state, move))]

    def happens(self, state: tuple[int, str | None], move: str) -> Outcome:
        opened, held = state
        match move.split():
            case ["ring"]:
                return Outcome("nothing", state)
            case ["take", key]:
                return Outcome("taken", (opened, key)) if key in self.keys else Outcome("nothing", state)
            case ["open", door]:
                if door != held or door != self.doors[opened]:
                    return Outcome("locked", state)
                over = opened + 1 == len(self.doors)
                return Outcome("opened", None if over else (opened + 1, None), over)
        return Outcome("what", state)

    def useless(self, move: str) -> bool:
        return move == "ring"

    def weight(self, move: str) -> int:
        return 4 if move == "ring" else 1

    def score(self, state: tuple[int, str | None]) -> float:
        return (2 * state[0] + (state[1] == self.doors[state[0]])) / (2 * len(self.doors))


GAMES: dict[str, type[Game]] = {kind.name: kind for kind in (LookUp, Halves, Doors)}


@lru_cache(maxsize=4096)
def game(name: str, number: int) -> Game:
    """Return a game by its name and number."""
    return GAMES[name](number)


def numbers(split: Split, count: int) -> list[int]:
    """Return the numbers of the first games of a split."""
    rests = SPLITS[split]
    return [10 * (place // len(rests)) + rests[place % len(rests)] for place in range(count)]


def vocabulary() -> list[str]:
    """Return every word of the games."""
    return list(dict.fromkeys([*WORDS, *NAMES, *(word for each in FACTS.values() for word in each), *NUMBERS]))


def played(each: Game, draw: random.Random, accuracy: float | None = None) -> list[tuple[str, str]]:
    """Return a conversation with the player: moves and the answers to them. accuracy: accuracy of another player than
    that of the game.
    """
    state, turns = each.first, []
    while state is not None and len(turns) < each.turns:
        moves = each.player(state, each.turns - len(turns), each.accuracy if accuracy is None else accuracy)
        (move,) = draw.choices(list(moves), list(moves.values()))
        then = each.happens(state, move)
        turns.append((move, then.said))
        state = then.state
    return turns
