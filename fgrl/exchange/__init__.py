"""A first recipe from a person's rows, and models that leave."""
