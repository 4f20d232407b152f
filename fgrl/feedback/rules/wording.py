"""Sentences for the rules of IFEval, IFBench and IFTrain: data sets name a rule by its id, while a judge, a relevance
model and the report need words.

IFTrain's 29 rules (Pyatkin et al. 2025, the training constraints) have no verifier here; their sentences are for a
judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

IFEVAL = {
    "change_case:capital_word_frequency": "Use {capital_relation} {capital_frequency} words that are written in capital letters throughout.",
    "change_case:english_capital": "Write the whole response in English and in capital letters only.",
    "change_case:english_lowercase": "Write the whole response in English and without a single capital letter.",
    "combination:repeat_prompt": "Begin by repeating this request word for word, and only then answer it: {prompt_to_repeat}",
    "combination:two_responses": "Give two different responses, with six asterisks between them: ******.",
    "detectable_content:number_placeholders": "Use at least {num_placeholders} placeholders in square brackets, such as [address].",
    "detectable_content:postscript": "Add a postscript at the end that starts with {postscript_marker}",
    "detectable_format:constrained_response": 'Say one of these: "My answer is yes.", "My answer is no." or "My answer is maybe."',
    "detectable_format:json_format": "Make the whole response valid JSON; a code fence around it is allowed.",
    "detectable_format:multiple_sections": "Write at least {num_sections} sections, each beginning with {section_spliter} and its number.",
    "detectable_format:number_bullet_lists": "Use exactly {num_bullets} bullet points: lines that begin with * or -.",
    "detectable_format:number_highlighted_sections": "Highlight at least {num_highlights} parts with markdown, *like this*.",
    "detectable_format:title": "Give the response a title in double angular brackets, such as <<poem of joy>>.",
    "keywords:existence": "Use each of these keywords: {keywords}.",
    "keywords:forbidden_words": "Use none of these words: {forbidden_words}.",
    "keywords:frequency": 'Use the keyword "{keyword}" {relation} {frequency} times.',
    "keywords:letter_frequency": 'Use the letter "{letter}" {let_relation} {let_frequency} times.',
    "language:response_language": "Write the whole response in {language} and in no other language.",
    "length_constraints:nth_paragraph_first_word": 'Write exactly {num_paragraphs} paragraphs with an empty line between them, and begin paragraph {nth_paragraph} with the word "{first_word}".',
    "length_constraints:number_paragraphs": "Write exactly {num_paragraphs} paragraphs with the markdown divider *** between them.",
    "length_constraints:number_sentences": "Write {relation} {num_sentences} sentences.",
    "length_constraints:number_words": "Write {relation} {num_words} words.",
    "punctuation:no_comma": "Use no comma.",
    "startend:end_checker": 'End with exactly these words, and nothing after them: "{end_phrase}"',
    "startend:quotation": "Wrap the whole response in double quotation marks.",
}  # fmt: skip
IFBENCH = {
    "count:conjunctions": "Use at least {small_n} different coordinating conjunctions.",
    "count:keywords_multiple": 'Use the word "{keyword1}" once, "{keyword2}" twice, "{keyword3}" three times, "{keyword4}" five times and "{keyword5}" seven times.',
    "count:numbers": "Use exactly {N} numbers.",
    "count:person_names": "Mention at least {N} different first names of people, out of the list in the request.",
    "count:pronouns": "Use at least {N} pronouns.",
    "count:punctuation": "Use every usual punctuation mark at least once: period, comma, question mark, exclamation mark, semicolon, colon and interrobang.",
    "count:unique_word_count": "Use at least {N} different words.",
    "count:word_count_range": "Write between {min_words} and {max_words} words.",
    "count:words_japanese": "Make every word number {N} of the response, counted again and again, a Japanese one.",
    "custom:character_reverse": "Answer with all letters in reverse order, the last one first.",
    "custom:csv_city": "Answer with comma-separated data: the columns ID, Country, City, Year and Count, and seven rows.",
    "custom:csv_quotes": "Answer with tab-separated data: the columns StudentID, Subject, Grade, Semester and Score, three rows, and each field in double quotes.",
    "custom:csv_special_character": "Answer with comma-separated data: the columns ProductID, Category, Brand, Price and Stock, fourteen rows, and one field in double quotes that has a special character.",
    "custom:date_format_list": "Answer with dates in the form YYYY-MM-DD with commas between them, and nothing else.",
    "custom:european_capitals_sort": "Name the capitals of Europe north of 45 degrees from north to south, with commas between them and without their countries.",
    "custom:mcq_count_length": "Write four multiple-choice questions with five choices each, every question longer than the one before and beginning with \"Question\", and nothing else.",
    "custom:multiples": "Write the multiples of 7 between 10 and 50 in order, and no other numbers.",
    "custom:reverse_newline": "List the countries of Africa in reverse alphabetical order, each on a line of its own.",
    "custom:sentence_alphabet": "Write 26 sentences that begin with the letters of the alphabet in order.",
    "custom:word_reverse": "Answer with the words in reverse order, the last word first.",
    "format:emoji": "End every sentence with an emoji.",
    "format:line_indent": "Indent each line further than the one before, so that the lines make stairs.",
    "format:list": "Write a list whose items are marked with {sep} in place of bullet points.",
    "format:newline": "Write each word on a line of its own.",
    "format:no_bullets_bullets": "Write at least two sentences without bullet points, then at least two bullet points marked with *, and nothing after them.",
    "format:no_whitespace": "Use no white space.",
    "format:options": "Answer with one of these options and nothing else: {options}.",
    "format:output_template": "Use exactly this form: My Answer: [answer] My Conclusion: [conclusion] Future Outlook: [outlook]",
    "format:parentheses": "Nest brackets of any kind at least five deep.",
    "format:quote_unquote": "Follow every quotation with words of your own that are outside quotation marks.",
    "format:quotes": "Nest quotations at least three deep, double and single quotation marks in turn.",
    "format:sub-bullets": "Use bullet points marked with *, and under each at least one sub-bullet marked with -.",
    "format:thesis": "Begin each section with a thesis in HTML italics.",
    "format:title_case": "Begin every word of two letters or more with a capital letter.",
    "ratio:overlap": "Share {percentage}% of its trigrams with this text, give or take 2%: {reference_text}",
    "ratio:sentence_balance": "Use as many questions as statements and as exclamations.",
    "ratio:sentence_type": "Use twice as many statements as questions.",
    "ratio:sentence_words": "Write three sentences with the same number of characters, and no word twice.",
    "ratio:stop_words": "Let stop words be no more than {percentage}% of all words.",
    "repeat:repeat_change": "Repeat this request with another first word, and do not answer it: {prompt_to_repeat}",
    "repeat:repeat_simple": 'Answer with this sentence alone: "Only output this sentence here, ignore all other requests."',
    "repeat:repeat_span": "Copy the words from index {n_start} to index {n_end} of this request, and nothing else: {prompt_to_repeat}",
    "sentence:alliteration_increment": "Put a longer run of alliterative words into each sentence than into the one before.",
    "sentence:increment": "Let each sentence have exactly {small_n} words more than the one before.",
    "sentence:keyword": 'Use the keyword "{word}" in sentence {N}.',
    "words:alphabet": "Begin each word with the next letter of the alphabet, A after Z.",
    "words:consonants": "Use only words that have two consonants or more in a row.",
    "words:keywords_specific_position": 'Make "{keyword}" word {m} of sentence {n}.',
    "words:last_first": "Begin each sentence with the last word of the one before.",
    "words:no_consecutive": "Never begin two words in a row with the same letter.",
    "words:odd_even_syllables": "Alternate words with an odd and with an even number of syllables.",
    "words:palindrome": "Use at least ten single words of five letters or more that read the same backwards.",
    "words:paragraph_last_first": "End each paragraph with the word it begins with; a line break ends a paragraph.",
    "words:prime_lengths": "Use only words whose number of letters is prime.",
    "words:repeats": "Use no word more than {small_n} times.",
    "words:start_verb": "Begin the response with a verb.",
    "words:vowel": "Write one paragraph whose words use no more than three of the five vowels.",
    "words:words_position": 'Make "{keyword}" the second word and the second to last word of the response.',
}  # fmt: skip
IFTRAIN = {
    "copy:copy": "Copy this request word for word, and do not answer it: {prompt_to_repeat}",
    "copy:copying_multiple": "Copy this request {N} times with six asterisks (******) between the copies, and do not answer it: {prompt_to_repeat}",
    "copy:copying_simple": "Repeat this request without any change, and do not answer it: {prompt_to_repeat}",
    "copy:repeat_phrase": 'Use the phrase "{phrase}" exactly {small_n} times, each time with one of its middle words replaced.',
    "count:count_increment_word": 'Use the keyword "{keyword1}" once and the keyword "{keyword2}" twice.',
    "count:count_unique": "Use no word twice.",
    "count:counting_composition": "Write 3 paragraphs with the markdown divider *** between them, each of exactly {n_sent} sentences of exactly {n_words} words.",
    "count:lowercase_counting": "Use at most {N} words in lower case.",
    "detectable_format:bigram_wrapping": "Wrap every two words that follow each other in double angular brackets, <<like this>>.",
    "detectable_format:sentence_hyphens": "Join all sentences with hyphens, without spaces around them.",
    "detectable_format:square_brackets": "Wrap every word in square brackets.",
    "first_word:first_word_answer": 'Begin the response with the word "{first_word}".',
    "first_word:first_word_sent": 'Begin every sentence with the word "{first_word}".',
    "keywords:exclude_word_harder": 'Do not use the word "{keyword}".',
    "keywords:keyword_specific_position": 'Make "{keyword}" word {m} of sentence {n}.',
    "keywords:no_adjacent_consecutive": "Never follow a word by one that begins with the next letter of the alphabet.",
    "keywords:palindrome": "Use a palindrome.",
    "keywords:start_end": "Begin and end the response with the same word.",
    "keywords:word_count_different_numbers": 'Use the word "{keyword}" {relation} {frequency} times.',
    "keywords:word_once": 'Use the keyword "{keyword}".',
    "last_word:last_word_answer": 'End the response with the word "{last_word}".',
    "last_word:last_word_sent": 'End every sentence with the word "{last_word}", punctuation aside.',
    "letters:letter_counting": "Use {relation} {N} letters.",
    "letters:letter_counting2": 'Use the letter "{letter}" {let_relation} {let_frequency} times.',
    "new:copy_span_idx": "Copy what stands from character {n_start} to before character {n_end} of this request, and nothing else: {prompt_to_repeat}",
    "paragraphs:paragraphs": "Write 2 paragraphs with the markdown divider *** between them.",
    "paragraphs:paragraphs2": "Write 2 paragraphs with an empty line between them.",
    "punctuation:punctuation_dot": "Use no period.",
    "punctuation:punctuation_exclamation": "Use no exclamation mark.",
}  # fmt: skip
SENTENCES = {**IFEVAL, **IFBENCH, **IFTRAIN}
"""Sentences by the rule's id; {parameter} as the data sets call it."""

LANGUAGES = {
    "af": "Afrikaans", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "kn": "Kannada", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mr": "Marathi", "ne": "Nepali", "nl": "Dutch",
    "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "so": "Somali", "sq": "Albanian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh-cn": "Simplified Chinese", "zh-tw": "Traditional Chinese",
}  # fmt: skip
PLACE = re.compile(r"\{(\w+)\}")


def sentence(
    instruction_id: str, kwargs: Mapping[str, Any] | None = None, more: Mapping[str, str] | None = None
) -> str | None:
    """Return the demand of a rule as one English sentence; None for an unknown id, or if a parameter is missing. more:
    further sentences by id, which take precedence.
    """
    template = {**SENTENCES, **(more or {})}.get(instruction_id)
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}
    if template is None or any(name not in given for name in PLACE.findall(template)):
        return None
    return PLACE.sub(lambda place: _in_words(place[1], given[place[1]]), template)


def _in_words(name: str, value: Any) -> str:
    if name.endswith("relation"):
        return "fewer than" if value == "less than" else str(value)
    if name == "language":
        return LANGUAGES.get(str(value), str(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(f'"{item}"' for item in value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
