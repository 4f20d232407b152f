"""Everything that a recipe may name. Importing this registers all of it, and loads none of the heavy libraries."""

from fgrl.components import (
    algorithms,
    annotators,
    clients,
    engines,
    judges,
    metrics,
    normalizers,
    pair_builders,
    readers,
    relevance,
    rewards,
    rewriters,
    segmenters,
    verifiers,
)
