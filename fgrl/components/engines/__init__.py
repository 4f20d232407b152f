"""How responses are drawn from a model. Importing this package registers the engines."""

from fgrl.components.engines import hf
