"""The games of the credit benchmark as an environment, with the reward and the true value of each turn."""

from __future__ import annotations

from typing import Annotated, Literal

from credit_language import HERE
from turn_games import COST, GAMES, SAME, Game, game

from fgrl import DataError, Environment, Episode, File, register

GameName = Literal["lookup", "halves", "doors"]
assert set(GameName.__args__) == set(GAMES)


class Playing(Episode):
    """A game in progress. `info` of a turn:

    - credit: the reward of the turn plus the change of the state's value. The first turn also has the value of the state
      before it, so that the sum over all turns is the reward of the conversation.
    - worth: 1 if the move promised more than the player's moves do on average, -1 if less
    - useless: whether the move never changes anything
    - score: the progress of the state
    - success: whether the game was won, in the last turn
    """

    def __init__(self, of: Game) -> None:
        self.game, self.state, self.left = of, of.first, of.turns

    def step(self, text):
        move, each = " ".join(text.split()), self.game
        before = each.value(self.state, self.left)
        promised = each.expected(self.state, self.left, move) - before
        then = each.happens(self.state, move)
        reward = then.success - COST
        credit = reward + each.value(then.state, self.left - 1) - before * (self.left < each.turns)
        score = float(then.success) if then.state is None else each.score(then.state)
        self.state, self.left = then.state, self.left - 1
        over = self.state is None or not self.left
        worth = (promised > SAME) - (promised < -SAME)
        info = {"credit": credit, "worth": worth, "useless": each.useless(move), "score": score}
        return then.said, reward, over, False, info | ({"success": float(then.success)} if over else {})


@register("turn_game")
class TurnGame(Environment):
    """Environment of a game of the credit benchmark, the one of the sample."""

    task: GameName
    """Name of the game."""
    games: Annotated[str, File] = str(HERE / "turn_games.py")
    """File that defines the games."""

    def begin(self, sample, seed):
        if "game" not in sample.meta:
            raise DataError(f"sample {sample.id} names no game: read it with `turn_prompts`")
        return Playing(game(self.task, sample.meta["game"]))
