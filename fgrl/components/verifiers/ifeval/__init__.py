"""The rules of IFEval under their ids (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models").

Their parameters have the data set's names. docs/how-to/verifiers.md lists possible differences from the results of the
official checker.
"""
