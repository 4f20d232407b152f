"""The credit benchmark: tasks that know which words are right, methods that differ in their credit, and a line for each run.

Files that recipes import (`credit_language.py` and those that import it, `turn_data.py`, `turn_environment.py`, `turn_credit.py`) name each
other as files of one folder do; all others are modules of this package.
"""
