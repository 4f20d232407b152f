"""The report of a run and of a sweep, and the page on which people mark spans."""
