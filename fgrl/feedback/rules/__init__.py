"""Rules that a program decides, and the programs that decide them."""
