"""A first recipe from a person's rows, and the export of models."""
