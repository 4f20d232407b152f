"""Relevance: weights of the tokens of a response on which a criterion's verdict depends."""
