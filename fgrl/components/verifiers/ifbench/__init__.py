"""The rules of IFBench under their ids (Pyatkin et al. 2025, "Generalizing Verifiable Instruction Following").

Their parameters have the data set's names. The rules follow the official checker even if it requires less than its
sentence; the rule's docstring then says so. docs/how-to/verifiers.md lists possible differences in results.
"""
