"""Answers that somebody thought about: for each id parameters, answers that keep the rule and answers that break it."""

from __future__ import annotations

from typing import Any

Example = tuple[str, dict[str, Any], list[str], list[str]]
FENCE = "```"

CITIES = "ID,Country,City,Year,Count\n" + "\n".join(f"{n},France,Paris,20{n}0,{n}" for n in range(1, 8))
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n" + "\n".join(f'{n},Toys,"A&B",1.5,{n}' for n in range(14))
GRADES = "\n".join(['"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"'] + ['"1"\t"Art"\t"A"\t"2"\t"90"'] * 3)
STORY = " ".join(f"{chr(65 + n)} cat slept." for n in range(26))
QUIZ = "\n\n".join(
    f"Question {n}: Who painted {'very ' * n}well?\n" + "\n".join(f"{c}) one" for c in "ABCDE") for n in range(1, 5)
)
AFRICA = "\n".join(["Zimbabwe", "Zambia", *[f"{chr(88 - n // 3)}{chr(122 - n % 3)}" for n in range(51)]])
CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, "
    "Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chișinău, Bern, Ljubljana, "
    "Zagreb"
)
REQUEST = "Write two lines about the cat."
ENGLISH = "this is a long sentence in plain english about the weather of today"
FIVE = {"keyword1": "ant", "keyword2": "bee", "keyword3": "cow", "keyword4": "dog", "keyword5": "eel"}
FIVE_TEXT = "Ant" + " bee" * 2 + " cow" * 3 + " DOG" * 5 + " eel" * 7

EXAMPLES: list[Example] = [
    (
        "keywords:existence",
        {"keywords": ["cat", "naïve"]},
        ["Cat and NAÏVE.", "concatenation, naïvely", "「cat」naïve", '"cat" {"naïve": 1}', f"{FENCE}\ncat\nnaïve\n{FENCE}"],
        ["cat", "naive cat", "c a t naïve", "nai\u0308ve cat"],
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "at least"},
        ["cat cat", "CatCAT", '"cat", “cat”', "cat\ncat\r\ncat"],
        ["cat", "c at ca t", "dog"],
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "less than"},
        ["cat", "dog", "你好"],
        ["cat cat", "concatenate the cat"],
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["cat", "ice cream"]},
        ["cats", "concatenate", "ice  cream", "_cat_", "catégorie"],
        ["cat", "The CAT.", '"cat"', "no-cat-here", "Ice cream!", f"{FENCE}cat{FENCE}", '{"cat": 1}', "cat’s"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "E", "let_frequency": 3, "let_relation": "at least"},
        ["eee", "EeE", "never ever", "e\ne\ne"],
        ["ee", "é é é", "あ"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "k", "let_frequency": 1, "let_relation": "less than"},
        ["no such letter", "ķ"],
        ["k", "K", "\u212a"],  # the Kelvin sign is a small k in lower case
    ),
    (
        "language:response_language",
        {"language": "fr"},
        ["Ceci est une phrase assez longue, écrite en français.", "12345", "!!!"],
        ["This is quite a long sentence that is written in English.", "これは日本語の文章です。"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["One. Two.", "One! Two", 'He said "no." Then he left.', "Wow?! Yes.", "It rained.\n\nIt stopped."],
        ["One.", "One", "Dr. Smith is here.", "Pi is 3.14, see example.com", "Well... maybe", "一。二。"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["One.", "no end", "What?!!"],
        ["One. Two.", "One? Two! Three."],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb", "a***b", "***\na\n***\nb", "a\n***\nb\n***\n", "a *** b", "你好***🎉"],
        ["a", "a\n\nb", "a\n***\n***\nb", "a***b***c", "a\n***", "******"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        ["a b c", "don't stop", "你 好 吗", "a-b-c", '{"a": [b, 1]}'],
        ["a b", "...", "a\n\nb", "你好"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        ["a b", "!!!", "你好"],
        ["a b c", "a,b,c", "it's ok"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Cat"},
        ["a\n\ncat b", "a\n\nCat, b", "a\n\n'\"cat\" b", "a\n\n'CAT", "a\nb\n\n cat"],
        ["a\n\ncats", "a\ncat", "cat\n\na", "a\n\nb\n\ncat", "a\n\n“cat”", "\n\na\n\ncat", "a\n\n\n\ncat", "a\n\n,cat", "a\n\n\"'cat' b"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] [b]", "[][]", "[[a] [b]]", '[1, 2] and ["x"]', "[你好][🎉]"],
        ["[a]", "[a\n] [b]", "(a) (b)", "[a", "［a］［b］"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Dear.\nP.S. Hi", "p. s. x", "text p.s.", f"{FENCE}\nP.S. x\n{FENCE}"],
        ["PS: x", "P.S x", "P.P.S", "Ｐ.Ｓ. x"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        ["p.p.s", "P. P. S. x", "x\nP.P.S: y"],
        ["P.S.", "PPS", "P.P.\nnot"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n- b", "* a\n  - b", "-a\n*b", "text\n* **b**\n\n- c", "* 你好\n- 🎉"],
        ["* a", "* a\n* b\n* c", "** a\n** b", "+ a\n+ b", "• a\n• b", "a * b\na - b", "1. a\n2. b"],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "Well. My answer is no. Really.", '"My answer is maybe."'],
        ["my answer is yes.", "My answer is yes", "My answer  is yes.", "Yes."],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* *b*", "**a** **b**", "*a* and **b**", "*你好* *🎉*", "* a * b * c *"],
        ["*a*", "* *  **  **", "*a\nb* *c*", "_a_ _b_", "*** ***"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb", "Section1 Section\n2", "Subsection 1 Section 2, Section ٣"],
        ["Section 1", "section 1 section 2", "SECTION 1 SECTION 2", "Section one Section two"],
    ),
    (
        "detectable_format:json_format",
        {},
        [
            '{"a": 1}',
            f'{FENCE}json\n{{"a": [1, {{"b": null}}]}}\n{FENCE}',
            f"{FENCE}\n[]\n{FENCE}",
            f"{FENCE}JSON\n1{FENCE}",
            ' "你好 \\ud83c\\udf89" ',
            '{"a": {"b": {"c": [[[{"d": "e, }"}]]]}}}',
            "NaN",
            "12",
        ],
        [
            "{'a': 1}",
            '{"a": 1',
            'Here: {"a": 1}',
            '{"a": 1} {"b": 2}',
            f"{FENCE}json\n{FENCE}",
            f"{FENCE}python\n[]\n{FENCE}",
            "“a”",
            '{"a": 1,}',
            "[" * 100_000,
            "9" * 5000,
        ],
    ),
    (
        "detectable_format:title",
        {},
        ["<<a>>", "x <<poem of joy>> y", "<<<a>>>", "<<你好>>", "<<a <<b>>", '<<"quoted">>'],
        ["<<>>", "<< >>", "<a>", "<<a\nb>>", "《a》", "«a»"],
    ),
    (
        "combination:two_responses",
        {},
        ["a******b", "a\n******\nb", "******a******b******", '{"a": 1}******{"b": 2}'],
        ["a", "a******a", "a******b******c", "a************b", "a******", "a***b", "a****** a "],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": REQUEST},
        [REQUEST, f"\n {REQUEST.upper()} Here they are.", REQUEST + REQUEST],
        [f'"{REQUEST}"', f"Sure. {REQUEST}", REQUEST[:-1], REQUEST.replace(" ", "  ")],
    ),
    (
        "startend:end_checker",
        {"end_phrase": "Any other questions?"},
        ["x. Any other questions?", 'He: "ANY OTHER QUESTIONS?"', "any other questions?\n\n"],
        ["Any other questions? No.", "Any other questions", "Any other questions?'", "Any other questions?```", "x"],
    ),
    (
        "startend:quotation",
        {},
        ['"a"', ' "a" ', '""', '"a" and "b"', '"\n"'],
        ['"', "“a”", "'a'", '"a', 'a"', '"a".', "«a»"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["NASA and ESA", "I am I", "WELL-KNOWN FACT", "DON'T", "É Ü", "HTML5 CSS3.", "A.B. C"],
        ["NASA", "Nasa Esa", "WELL-KNOWN", "你好 世界", "1 2 3"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        ["NASA", "nothing here", "Title Case Words"],
        ["NASA ESA", '"A" (B)'],
    ),
    (
        "change_case:english_capital",
        {},
        [ENGLISH.upper(), f"{ENGLISH.upper()} 123!"],
        [ENGLISH, ENGLISH.upper() + " a", "123", "你好", "CECI EST UNE PHRASE ASSEZ LONGUE EN FRANÇAIS"],
    ),
    (
        "change_case:english_lowercase",
        {},
        [ENGLISH, f'{ENGLISH} "123"\n{ENGLISH}'],
        [ENGLISH.title(), ENGLISH + " A", "123", "你好", "ceci est une phrase assez longue en français", ENGLISH + " ǅ"],
    ),
    (
        "punctuation:no_comma",
        {},
        ["a; b", "a， b、c،", "...", "1.000"],
        ["a, b", ",", '{"a": 1, "b": 2}', "1,000", "“a,”"],
    ),
    # -- IFBench ----------------------------------------------------------------------------------------------------------
    (
        "count:word_count_range",
        {"min_words": 2, "max_words": 3},
        ["a b", "a b c", "it's"],
        ["a", "a b c d", "...", "it's a b"],
    ),
    (
        "count:unique_word_count",
        {"N": 3},
        ["a b c", "a, b c a", "a b ...", "A b 你好"],
        ["a b", "a A a.", "a b b b"],
    ),
    (
        "ratio:stop_words",
        {"percentage": 50},
        ["cats sleep", "the cat", "Paris", "你好"],
        ["it is a cat", "the", "don't", "...", "The AND of"],
    ),
    (
        "ratio:sentence_type",
        {},
        ["Ab. Cd. Ef?", "no end", "Wow!", 'Ab. "Cd." Ef?'],
        ["Ab.", "Ab. Cd?", "Why?", "Ab. Cd. Ef? Gh?"],
    ),
    (
        "ratio:sentence_balance",
        {},
        ["Ab. Cd? Ef!", "no end", "Ef! Ab. Cd?"],
        ["Ab.", "Ab. Cd?", "Ab. Cd? Ef! Gh!"],
    ),
    (
        "count:conjunctions",
        {"small_n": 2},
        ["a and b or c", "And, and", "so yet"],
        ["a and b", "sand orbit", "and and", "&"],
    ),
    (
        "count:person_names",
        {"N": 2},
        ["Emma and Liam", "EmmaLiam", "Mia's Leopard"],
        ["Emma", "emma liam", "Emma Emma", "Bob Alice"],
    ),
    (
        "ratio:overlap",
        {"reference_text": "the cat sat on the mat", "percentage": 100},
        ["the cat", "sat on the", "mat"],
        ["a dog", "ab", "The Cat", "你好吗"],
    ),
    (
        "count:numbers",
        {"N": 2},
        ["1 2", "3.14 and 1,000", "a1b2", "٣ 4", "[1] {2}"],
        ["1", "1 2 3", "one two", "1.2", "½ ²"],
    ),
    (
        "count:punctuation",
        {},
        ["a. b, c! d? e; f: g?!", "?! .,!?;:", "‽ ?.,;:!", "!? .,!?;:"],
        [".,!?;:", "?! .,;:", "a. b, c! d? e; f:", "？！。，；："],
    ),
    (
        "count:words_japanese",
        {"N": 2},
        ["a 猫 b 犬", "a", "a 12 b かな", "a - b カ", "「a」 「猫」"],
        ["a b", "a 猫 b c", "a 한국", "猫 a"],
    ),
    (
        "count:pronouns",
        {"N": 2},
        ["he saw it", "she/her", "You. Me!", "it it"],
        ["he", "item this", "don't", "It's"],
    ),
    ("count:keywords_multiple", FIVE, [FIVE_TEXT, FIVE_TEXT.replace(" ", ""), FIVE_TEXT + "!"], [FIVE_TEXT + " ant", FIVE_TEXT[:-3], "ant bee"]),
    (
        "words:alphabet",
        {},
        ["a b c", "Y, z a", "Zebra, ants \"bite\" cats", "a"],
        ["a c", "1 a", "a a", "é f", "...", "a 你"],
    ),
    ("words:vowel", {}, ["a e i", "banana", "sky", "ÄÖÜ oi", "a\t e"], ["a e i o", "a\nb", "education", "AEIOU"]),
    ("words:consonants", {}, ["strength spell", "ebb ST", "rhythm", '"st"'], ["a", "banana", "st a", "你好", "s-t"]),
    (
        "words:palindrome",
        {},
        ["level " * 10, "level, radar; civic: kayak! rotor? refer. madam, tenet stats Solos", "ababa " * 12],
        ["level " * 9, "noon " * 20, "level"],
    ),
    ("words:prime_lengths", {}, ["it is", "me, us", "abc.", "a-b", "你好"], ["a", "four", "it is a", "123456"]),
    ("words:repeats", {"small_n": 2}, ["a a b", "a A b b", "a a, b"], ["a a a", "A a a.", "it's its it's"]),
    (
        "words:keywords_specific_position",
        {"keyword": "cat", "n": 2, "m": 3},
        ["One. The big cat sat.", "A? b, cat", "Hi. The \"cat"],
        ["One. The cat sat.", "One.", "One. The big Cat", "the big cat"],
    ),
    (
        "words:words_position",
        {"keyword": "cat"},
        ["a cat b cat.", "a cat b", "the cat sat. A cat!", '"cat"'],
        ["a cat b.", "cat", "a Cat b Cat.", "cat a"],
    ),
    ("words:odd_even_syllables", {}, ["a water a water", "cat", "the little cat"], ["cat dog", "water table", "a b"]),
    (
        "words:last_first",
        {},
        ["I see cats. Cats see me. Me too.", "One", 'He left. "Left it" he did', "I see! See it"],
        ["Big cats. Small dogs", "Aa. ... aa", "I see cats. Dogs see me."],
    ),
    (
        "words:paragraph_last_first",
        {},
        ["cat and cat", "Cat the cat.\n\ndog\n", '"Yes he said yes"', "...", "你 好 你"],
        ["cat and dog", "Cat, the cat.", "cat cat\na b", "cat’s cat"],
    ),
    ("words:no_consecutive", {}, ["a b a b", "cat dog", "a - b", "你 好"], ["a a", "cat, Cow", "big (bad)", "1 12"]),
    (
        "sentence:alliteration_increment",
        {},
        ["One thing. Big bears. Big brown bears.", "no end", "a. b b."],
        ["Big bears. Cats do.", "One. Two.", "big bears. Tall trees."],
    ),
    (
        "sentence:keyword",
        {"word": "cat", "N": 2},
        ["One. The cat.", "One? CATS! x", 'Aa. "cat"'],
        ["cat.", "One. Dog. cat.", "no end cat"],
    ),
    (
        "sentence:increment",
        {"small_n": 1},
        ["One. Two words. Now three words.", "one", "a b! c d e?"],
        ["One. Two.", "Three words here. Two words.", "Aa. Bb cc dd."],
    ),
    (
        "format:parentheses",
        {},
        ["((((()))))", "([{([x])}])", "x ((((( y )"],
        ["(((())))", "(((((", "()()()()()", "((((]", "（（（（（））））））"],
    ),
    (
        "format:quotes",
        {},
        ["\"a 'b \"c\" d' e\"", "'a \"b 'c' d\" e'", "\"'\"\"'\""],
        ["\"a 'b' c\"", '"""', "“‘“a”’”", "'a'"],
    ),
    (
        "format:options",
        {"options": "yes/no/maybe"},
        ["yes", "No.", ' "maybe" ', "YES!"],
        ["yes no", "y", "yes/no", "yes\n", "„yes”"],
    ),
    ("format:options", {"options": "a), b), c), d)"}, ["a)", "d)"], ["a", "A)", "a) ", "e)"]),
    ("format:options", {"options": "I know or I don't know"}, ["I know", "i don't know."], ["I knew", "or"]),
    ("format:newline", {}, ["a\nb\nc", "a", "a\n\n\nb", "你好\n!\nworld"], ["a b", "a\nb c", "one two\nthree"]),
    (
        "format:emoji",
        {},
        ["Hi 🎉.", "Hi. 🎉", "Hi 🎉! Yo 👍", "Hi ❤️.", "Hi 👍🏽", "Hi. 🎉 Yo 👍"],
        ["Hi.", "🎉 Hi.", "Hi 🎉. Yo.", "Hi :)", "..."],
    ),
    ("format:line_indent", {}, ["a\n b\n  c", "a", " a\n\n   b", "a\n    b"], ["a\nb", "a\n b\n c", "a\n\tb", "  a\n b"]),
    (
        "format:quote_unquote",
        {},
        ['"a" is b.', "no quotes", '“a” means "b", he said', "the character '\"'", "123"],
        ['"a"', '"a" "b" c', 'x “a”.', '""', '"a""b" c'],
    ),
    ("format:list", {"sep": "!?!?"}, ["!?!? a\n!?!? b", "!?!?!?!?"], ["!?!? a", "- a\n- b", "!? !?"]),
    (
        "format:thesis",
        {},
        ["<i>a</i> b", "x <em>a</em> b", "<i>你好</i>\nmore"],
        ["<i>a</i>", "<i></i> b", "*a* b", "<I>a</I> b", "</i> <i> b", "<i> </i> b"],
    ),
    ("format:sub-bullets", {}, ["* a\n  - b", "* a - b\n* c\n- d", "none"], ["* a", "* a\n* b\n - c", "**bold**"]),
    (
        "format:no_bullets_bullets",
        {},
        ["Aa. Bb.\n* c\n* d", "Aa.\nBb.\n* c\n  * d", "A b\nC d\n* e\n* f"],
        ["Aa.\n* c\n* d", "Aa. Bb.\n* c", "Aa. Bb.\n- c\n- d", "Aa. Bb.\n* c\n* d\nEe.", "Aa. Bb.\n\nCc.\n* d\n* e", "* a\n* b"],
    ),
    (
        "format:title_case",
        {},
        ["The Big Cat", "A Cat!", "USA", "123 ...", "Don'T"],
        ["the cat", "The big cat", "iPHONE", "Don't"],
    ),
    (
        "format:output_template",
        {},
        ["My Answer: a My Conclusion: b Future Outlook: c", "Future Outlook:\nMy Conclusion:\nMy Answer:"],
        ["My Answer: a", "my answer: my conclusion: future outlook:", "My Answer My Conclusion Future Outlook"],
    ),
    ("format:no_whitespace", {}, ["abc", "你好🎉", "{}", "a\u200bb"], ["a b", "a\n", "a\u00a0b", "a\u3000b"]),
    ("ratio:sentence_words", {}, ["Ab. Cd. Ef.", "Ab? Ab! Ab?"], ["Ab. Cd.", "A. Bc. D.", "Ab. Cd. Ef. Gh."]),
    ("custom:multiples", {}, ["14 21 28 35 42 49", "14,21,28,35,42,49", "14!21?28\n35 42 49"], ["14", "14 21 28 35 42 49 56", "7 14 21 28 35 42 49", "49 42 35 28 21 14"]),
    ("custom:mcq_count_length", {}, [QUIZ], ["Here:\n" + QUIZ, QUIZ.replace("very ", ""), QUIZ.replace("E) one", ""), "Question", "x"]),
    ("custom:reverse_newline", {}, [AFRICA, "Sure:\n" + AFRICA], ["Zimbabwe", AFRICA[::-1], AFRICA.replace("Zimbabwe\n", "")]),
    ("custom:word_reverse", {}, ["eagle bald the is It", "Eagle, bald"], ["bald eagle", "elgae dlab", "eagle"]),
    ("custom:character_reverse", {}, ["elgae dlab", "ELGAE DLAB eht"], ["bald eagle", "elgaedlab"]),
    ("custom:sentence_alphabet", {}, [STORY, STORY.lower()], [STORY[8:], STORY + " A cat.", STORY.replace("C cat", "X cat"), "A."]),
    ("custom:european_capitals_sort", {}, [CAPITALS, CAPITALS.replace("ș", "s").replace(", ", ",")], [CAPITALS + ".", CAPITALS.lower(), "Oslo"]),
    ("custom:csv_city", {}, [CITIES, CITIES + "\n"], [CITIES.replace(",", ";"), CITIES.rpartition("\n")[0], "```\n" + CITIES, CITIES + "\n\n"]),
    ("custom:csv_special_character", {}, [PRODUCTS], [PRODUCTS.replace("&", ""), PRODUCTS.replace('"', ""), PRODUCTS.rpartition("\n")[0]]),
    ("custom:csv_quotes", {}, [GRADES], [GRADES.replace('"Art"', "Art"), GRADES.replace("\t", ","), GRADES + '\n"1"']),
    ("custom:date_format_list", {}, ["1805-12-02", "1805-12-02, 1806-10-14", "1820-02-29", "1805-00-45"], ["1805-12-02.", "1899-01-01", "1805-13-01", "1805-02-30", "2 December 1805", "1805-12-02,"]),
    ("repeat:repeat_change", {"prompt_to_repeat": REQUEST}, [REQUEST.replace("Write", "Read"), REQUEST + " "], [REQUEST, "Read two lines", REQUEST.lower() + "."]),
    ("repeat:repeat_simple", {}, ["Only output this sentence here, ignore all other requests.", " ONLY output this sentence here, ignore all other requests.\n"], ["Only output this sentence here", '"Only output this sentence here, ignore all other requests."']),
    ("case:capitalized_words", {}, ["The Big Cat", "A 3 Éa -- (the)", "USA"], ["the cat", "The big cat", "A\nb"]),
    ("end:last_characters", {"characters": "."}, ["So.", "So. \n", "..."], ["So", 'He said "so."', "So.)", "So. x"]),
    ("repeat:repeat_span", {"prompt_to_repeat": REQUEST, "n_start": 1, "n_end": 3}, ["two lines", " TWO\nlines "], ["two", "two lines about", "Write two"]),
]  # fmt: skip
