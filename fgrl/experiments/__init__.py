"""From a recipe to finished stages."""
