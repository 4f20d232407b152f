"""Rewriters, which rewrite responses step by step as their highlights require."""
