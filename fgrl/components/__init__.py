"""Everything that a recipe may name."""
