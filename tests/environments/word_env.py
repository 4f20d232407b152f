"""An environment as TRL's documentation describes one for `environment_factory`, and tools as its `tools=`."""


class WordEnv:
    def __init__(self):
        self.reward = 0.0

    def reset(self, **kwargs) -> str | None:
        self.word, self.tries = kwargs["word"], 0
        self.reward = 0.0
        return f" It has {len(self.word)} letters."

    def guess(self, letter: str) -> str:
        """
        Guess a letter of the word.

        Args:
            letter: One letter.

        Returns:
            Where it stands.
        """
        self.tries += 1
        if len(letter) != 1:
            raise ValueError("One letter, please.")
        places = [str(place) for place, each in enumerate(self.word, 1) if each == letter]
        return f"{letter} stands at {', '.join(places)}." if places else f"{letter} is not there."

    async def say(self, word: str) -> str:
        """
        Say the whole word.

        Args:
            word: The word.
        """
        self.reward = 1.0 if word == self.word else 0.25
        return "Right." if word == self.word else "Wrong."

    def get_reward(self) -> float:
        return self.reward - 0.1 * self.tries

    def _secret(self):
        return self.word


def add(a: int, b: int = 1) -> int:
    """
    Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def leave(code: int) -> str:
    """
    End the process.

    Args:
        code: Its exit code.
    """
    raise SystemExit(code)


def lost(server: str) -> str:
    """
    Ask a server that is gone.

    Args:
        server: Which one.
    """
    raise ConnectionResetError(f"{server} is gone")


def undescribed(a):
    return a


def no_arguments_described(a: int) -> int:
    """Return a number."""
    return a
