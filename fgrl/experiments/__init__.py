"""Translation of recipes into finished stages."""
