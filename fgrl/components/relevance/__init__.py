"""Which tokens of a response a criterion's verdict depends on."""

from fgrl.components.relevance.discriminator import Discriminator, TruncatedDiscriminator
from fgrl.components.relevance.oracle import Oracle
from fgrl.components.relevance.random import RandomRelevance
from fgrl.components.relevance.uniform import Uniform
