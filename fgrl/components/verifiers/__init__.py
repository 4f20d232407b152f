"""Rules that a program can check, under the ids of IFEval where it has them."""

from fgrl.components.verifiers import all_of, no_comma, number_words

__all__ = ["all_of", "no_comma", "number_words"]
