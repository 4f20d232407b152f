"""The report of a run and of a sweep, and the page for annotating spans."""
