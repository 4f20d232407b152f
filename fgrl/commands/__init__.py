"""The commands. Each one reads its arguments and prints what the library returns."""
