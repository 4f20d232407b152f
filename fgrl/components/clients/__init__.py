"""Language models that annotators, judges and rewriters ask."""
