"""How responses are divided into segments. Importing this package registers the segmenters."""

from fgrl.components.segmenters import bandit, entropy, function, ngram, sentence, token
