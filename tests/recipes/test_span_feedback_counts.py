"""The numbers of pairs in Table 2, from a collection of the paper's shape and the settings of the paper's recipe."""

from __future__ import annotations

from functools import cache

from test_recipes import loaded

from fgrl.components.annotators.improvement_chain import ImprovementChain
from fgrl.components.rewriters.delete import Delete
from fgrl.experiments.stages.pair import PairStage, drawn
from fgrl.feedback.chain_checks import EditLimits
from fgrl.kinds import PairBuilder
from fgrl.types import Annotation, Pair, PairVerdict, Response, Sample, Span

PEOPLE = ("ann", "ben", "cleo", "dan")
ITEMS, BY_ALL, LOST, CHAINS, STEPS = 140, 100, 3, 277, 1303


def response(number: int, people: tuple[str, ...]) -> Response:
    """Response `number` of 280, whose annotators dislike four or five words each; of the last three the dislikes were lost."""
    words = [f"word{place}" for place in range(12)]
    text = " ".join(words)
    count = 0 if number >= CHAINS else 5 if number < STEPS - 4 * CHAINS else 4
    return Response(
        text=text,
        annotations=[
            Annotation(
                by=name,
                spans=[
                    Span(start=text.index(word), end=text.index(word) + len(word), label=-1)
                    for word in words[person : person + count]
                ],
            )
            for person, name in enumerate(people)
        ],
    )


@cache
def collection() -> list[Sample]:
    """140 items of two responses: 100 by all four people, the others by one of them each. The fourth always disagrees with the
    others, and two of four do on every fifth item."""
    samples = []
    for item in range(ITEMS):
        people = PEOPLE if item < BY_ALL else (PEOPLE[item % 4],)
        first = {"ann", "ben"} if item % 5 == 0 else {"ann", "ben", "cleo"}
        verdicts = [
            PairVerdict(first=0, second=1, by=name, verdict="first" if name in first else "second") for name in people
        ]
        responses = [response(2 * item + place, people) for place in range(2)]
        samples.append(Sample(id=str(item), prompt="Ask.", responses=responses, verdicts=verdicts))
    return samples


@cache
def chains() -> list[Sample]:
    settings = loaded("span_chains_table2").stages["chains"]
    assert settings.max_missing == 0
    annotator = ImprovementChain(
        rewriter=Delete(), limits=EditLimits(max_change=1.0), several=settings.annotator.several
    )
    made = annotator.annotate(collection())
    assert annotator.counts()["further annotations of a response"] == 2 * 3 * BY_ALL
    return made


def pairs(builder: PairBuilder, samples: list[Sample], most: int | None = None) -> list[Pair]:
    return drawn([pair for sample in samples for pair in builder.build(sample)], most, seed=0)


def test_one_annotation_of_each_response_becomes_a_chain() -> None:
    responses = {(made.meta["chain"]["of"], made.meta["chain"]["response"]) for made in chains()}
    assert len(chains()) == len(responses) == CHAINS == 2 * ITEMS - LOST
    used = [made.meta["chain"]["annotator"] for made in chains()]
    assert all(used.count(name) > CHAINS // 8 for name in PEOPLE)


def test_all_annotations_become_chains_where_that_is_wanted() -> None:
    annotator = ImprovementChain(rewriter=Delete(), limits=EditLimits(max_change=1.0), several="each")
    assert len(annotator.annotate(collection())) == 4 * 2 * BY_ALL + 2 * (ITEMS - BY_ALL) - LOST


def test_every_row_of_table_2_but_stepwise_and_ab_has_as_many_pairs() -> None:
    stages = loaded("span_chains_table2").stages
    made = {
        name: len(pairs(stage.builder, chains(), stage.max_pairs))
        for name, stage in stages.items()
        if isinstance(stage, PairStage) and name != "pairs_ab"
    }
    expected = {"pairs_first_edit": CHAINS, "pairs_full_rewrite": CHAINS, "pairs_stepwise_ds": CHAINS, "pairs": STEPS}
    assert made == expected


def test_a_comparison_makes_one_pair_however_many_people_made_it() -> None:
    for stage in (loaded("span_chains_table2").stages["pairs_ab"], loaded("span_chains_ab").stages["pairs"]):
        made = pairs(stage.builder, collection())
        assert len(made) == ITEMS - BY_ALL // 5
        assert len({pair.id.rpartition("#")[0] for pair in made}) == len(made)
