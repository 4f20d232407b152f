"""The commands: each reads its arguments, and prints what the library returns."""
