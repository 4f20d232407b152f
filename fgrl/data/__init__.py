"""Readers of data: rows, files, the hub, formats of data sets."""
