"""Feedback on responses: critiques, spans, chains of rewrites."""
