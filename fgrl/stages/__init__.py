"""The stages of recipes."""
