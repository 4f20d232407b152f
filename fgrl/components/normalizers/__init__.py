"""Normalizers, which center and scale segment rewards."""
