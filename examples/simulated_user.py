"""A simulated user: a language model that knows a word and answers questions about it, until the policy says the word."""

from fgrl import Client, Environment, Episode, Message, Question, Request, answered, register


class Talk(Episode):
    prompt = "I think of a word. Ask me about it, one question at a time, and say it once you know it."

    def __init__(self, user, word):
        self.user, self.word, self.said = user, word, []

    def step(self, text):
        if self.word.lower() in text.lower():
            return "Yes, that is it.", 1.0, True, False, {}
        self.said.append(Message(role="user", content=text.strip() or "(nothing)"))
        request = self.user.request(self.word, self.said)
        answer = answered(self.user.client, Question(request, str.strip, allow_truncated=True))
        self.said.append(Message(role="assistant", content=answer))
        return answer, 0.0, False, False, {}


@register("simulated_user")
class SimulatedUser(Environment):
    """Simulated user who thinks of a word, the reference of the prompt. The reward is 1 for the turn that says it."""

    client: Client
    """Language model that answers for the user."""
    max_tokens: int = 40
    """Maximum number of tokens of an answer."""

    def begin(self, sample, seed):
        return Talk(self, str(sample.reference))

    def asks(self, given):
        return [self.request(str(sample.reference), [Message(role="user", content=text)]) for sample, text in given]

    def request(self, word, said):
        rule = f'You think of the word "{word}". Answer the question about it in one short sentence, without the word.'
        return Request(messages=[Message(role="system", content=rule), *said], max_tokens=self.max_tokens, about=word)
