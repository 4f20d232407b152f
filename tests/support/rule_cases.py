"""What the rules are tried on: parameters for each id, and answers made of pieces that rules look for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fgrl.data.rubrics.instruction_ids import spec
from fgrl.kinds import Verifier
from fgrl.registry import build

Kwargs = dict[str, Any]
BOTH = ("at least", "less than")


def rule_of(name: str, kwargs: Kwargs | None = None) -> Verifier:
    """The rule that a data set names by id."""
    return build(Verifier, spec(name, kwargs))


IFEVAL: dict[str, list[Kwargs]] = {
    "keywords:existence": [{"keywords": ["cat", "word"]}, {"keywords": ["é"]}],
    "keywords:frequency": [{"keyword": " cat ", "frequency": n, "relation": r} for r in BOTH for n in (0, 1, 2)],
    "keywords:forbidden_words": [{"forbidden_words": ["cat", "word"]}, {"forbidden_words": ["the cat"]}],
    "keywords:letter_frequency": [
        {"letter": letter, "let_frequency": 3, "let_relation": r} for r in BOTH for letter in "aEk"
    ],
    "language:response_language": [{"language": "en"}, {"language": "fr"}],
    "length_constraints:number_sentences": [{"num_sentences": n, "relation": r} for r in BOTH for n in (1, 2, 3)],
    "length_constraints:number_paragraphs": [{"num_paragraphs": n} for n in (1, 2, 3)],
    "length_constraints:number_words": [{"num_words": 4, "relation": r} for r in BOTH],
    "length_constraints:nth_paragraph_first_word": [
        {"num_paragraphs": 2, "nth_paragraph": n, "first_word": word} for n in (1, 2) for word in ("Cat", "word")
    ],
    "detectable_content:number_placeholders": [{"num_placeholders": n} for n in (0, 1, 2)],
    "detectable_content:postscript": [{"postscript_marker": mark} for mark in ("P.S.", "P.P.S", "Note ")],
    "detectable_format:number_bullet_lists": [{"num_bullets": n} for n in (0, 1, 2)],
    "detectable_format:constrained_response": [{}],
    "detectable_format:number_highlighted_sections": [{"num_highlights": n} for n in (1, 2)],
    "detectable_format:multiple_sections": [
        {"section_spliter": word, "num_sections": n} for word in ("Section", "SECTION") for n in (1, 2)
    ],
    "detectable_format:json_format": [{}],
    "detectable_format:title": [{}],
    "combination:two_responses": [{}],
    "combination:repeat_prompt": [{"prompt_to_repeat": "The cat "}, {"prompt_to_repeat": "İ"}],
    "startend:end_checker": [{"end_phrase": "Any other questions?"}, {"end_phrase": "End"}],
    "startend:quotation": [{}],
    "change_case:capital_word_frequency": [{"capital_frequency": 2, "capital_relation": r} for r in BOTH],
    "change_case:english_capital": [{}],
    "change_case:english_lowercase": [{}],
    "punctuation:no_comma": [{}],
}

PROMPT = "Write two lines about the cat and the dog."
IFBENCH: dict[str, list[Kwargs]] = {
    "count:word_count_range": [{"min_words": 2, "max_words": 4}],
    "count:unique_word_count": [{"N": 3}],
    "ratio:stop_words": [{"percentage": 30}],
    "ratio:sentence_type": [{}],
    "ratio:sentence_balance": [{}],
    "count:conjunctions": [{"small_n": 2}],
    "count:person_names": [{"N": 2}],
    "ratio:overlap": [{"reference_text": "the cat sat on the mat", "percentage": n} for n in (0, 30, 60)],
    "count:numbers": [{"N": n} for n in (0, 1, 2)],
    "words:alphabet": [{}],
    "words:vowel": [{}],
    "words:consonants": [{}],
    "sentence:alliteration_increment": [{}],
    "words:palindrome": [{}],
    "count:punctuation": [{}],
    "format:parentheses": [{}],
    "format:quotes": [{}],
    "words:prime_lengths": [{}],
    "format:options": [
        {"options": "yes/no/maybe"},
        {"options": "I know or I don't know"},
        {"options": "a), b), c), d)"},
    ],
    "format:newline": [{}],
    "format:emoji": [{}],
    "ratio:sentence_words": [{}],
    "count:words_japanese": [{"N": 1}, {"N": 2}],
    "words:repeats": [{"small_n": 1}, {"small_n": 2}],
    "sentence:keyword": [{"word": "cat", "N": 1}, {"word": "Cat", "N": 2}],
    "count:pronouns": [{"N": 2}],
    "words:odd_even_syllables": [{}],
    "words:last_first": [{}],
    "words:paragraph_last_first": [{}],
    "sentence:increment": [{"small_n": 1}, {"small_n": 0}],
    "words:no_consecutive": [{}],
    "format:line_indent": [{}],
    "format:quote_unquote": [{}],
    "format:list": [{"sep": "!?!?"}, {"sep": "-"}, {"sep": "..."}],
    "format:thesis": [{}],
    "format:sub-bullets": [{}],
    "format:no_bullets_bullets": [{}],
    "custom:multiples": [{}],
    "custom:mcq_count_length": [{}],
    "custom:reverse_newline": [{}],
    "custom:word_reverse": [{}],
    "custom:character_reverse": [{}],
    "custom:sentence_alphabet": [{}],
    "custom:european_capitals_sort": [{}],
    "custom:csv_city": [{}],
    "custom:csv_special_character": [{}],
    "custom:csv_quotes": [{}],
    "custom:date_format_list": [{}],
    "count:keywords_multiple": [
        {"keyword1": "cat", "keyword2": "dog", "keyword3": "a", "keyword4": "é", "keyword5": "."},
    ],
    "words:keywords_specific_position": [{"keyword": "cat", "n": n, "m": m} for n in (1, 2) for m in (1, 2)],
    "words:words_position": [{"keyword": "cat"}],
    "repeat:repeat_change": [{"prompt_to_repeat": PROMPT}],
    "repeat:repeat_simple": [{}],
    "repeat:repeat_span": [{"prompt_to_repeat": PROMPT, "n_start": 1, "n_end": 3}],
    "format:title_case": [{}],
    "format:output_template": [{}],
    "format:no_whitespace": [{}],
}

OWN: dict[str, list[Kwargs]] = {
    "case:capitalized_words": [{}],
    "end:last_characters": [{"characters": mark} for mark in (".", "?!", "End")],
}
"""Rules of neither."""
RULES = IFEVAL | IFBENCH | OWN

PIECES = [
    # white space and marks
    " ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", ",", ".", ".", "?", "!", ":", ";", "...", "?!", "!?", "‽", "-", "--", "—",
    "'", '"', "“", "”", "(", "[", "{", ")", "]", "}", "((((((", "))", "\"'\"", "\"'\"x\"'\"", "*", "***", "******", "`", "```",
    # words
    "cat", "Cat", "CATS", "the cat", "dog", "word", "Word.", "a", "I", "End", "can't", "DON'T", "well-known", "and", "And", "but",
    "or", "she/her", "it", "level", "radar", "Emma", "Liam", "yes", "no", "maybe", "a)", "I know", "HELLO WORLD", "X", "x",
    "hello there my friend", "big brown bears", "Mr. ", "e.g. ", "U.S. ", "Ph.D. ", "Inc. He ", "Co.", "3.14", "1,000", "7", "14",
    # forms
    "**bold**", "*hi*", "- item", "\n* one", "\n- two", "\n  * three\n    - four", "[name]", "[a\nb]", "<<title>>", "<< >>", "P.S. x",
    "p.p.s", "P. P. S", "Section 1", "SECTION 2", " section3 ", '{"a": [1, {"b": null}]}', "```json", "<i>a</i>", "<em>b</em>",
    "My answer is yes.", "Any other questions?", "My Answer: ", "My Conclusion: ", "Future Outlook: ", "1805-12-02", "1899-02-30",
    "bald eagle", "eagle bald", "elgae dlab", "14, 21, 28, 35, 42, 49", PROMPT, "two lines", "yes/no",
    "Only output this sentence here, ignore all other requests.",
    # beyond ASCII
    "é", "naïve", "你好", "こんにちは", "。", "，", "🎉", "👍🏽", "❤️", "👨‍👩‍👧", "İ", "ſ", "K", "ß", "ǅ", "٣", "\u00a0", "\u200b",
]  # fmt: skip

pieces = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)
letters = st.text(st.sampled_from(list("ab cAB.,!?*-'\"\n[]1é你🎉")), max_size=30)
anything = st.text(max_size=30)
answers = st.one_of(pieces, pieces, letters, anything)
