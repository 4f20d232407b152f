"""Formats of rows: columns, tables, files."""
