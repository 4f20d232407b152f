"""The rules of IFEval under their ids (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models").

Their parameters have the data set's names. Where a result may differ from the official checker's:
docs/how-to/verifiers.md.
"""
