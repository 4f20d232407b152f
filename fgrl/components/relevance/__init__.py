"""Which tokens of a response a criterion's verdict depends on."""
