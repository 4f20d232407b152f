"""Finished runs as data: records, numbers, comparisons, conclusions."""
