"""Rules that a program can check, under the ids of IFEval and IFBench where they have them, and others."""
