"""Metrics of answers. A metric gets `Answer`s by model and returns `Estimate`s (`fgrl.measuring`)."""
