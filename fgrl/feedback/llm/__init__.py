"""Questions to language models: requests, caches, limits, costs."""
