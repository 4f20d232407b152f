"""The rules of IFBench under their ids (Pyatkin et al. 2025, "Generalizing Verifiable Instruction Following").

Their parameters have the data set's names. They follow the official checker also where it asks for less than its
sentence; each such place is in the rule's docstring. Where a result may differ: docs/how-to/verifiers.md.
"""
