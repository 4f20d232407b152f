"""Rules that a program can check: the rules of IFEval and IFBench under their ids, and others."""
