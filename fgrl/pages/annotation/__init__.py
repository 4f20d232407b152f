"""The page on which people mark spans of responses: its settings, its store, its server, and its export."""
