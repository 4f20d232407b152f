"""Language models that annotators, judges and rewriters ask."""

from fgrl.components.clients import local, openai, replay
