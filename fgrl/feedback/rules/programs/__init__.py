"""Candidate programs: found in a response, run on the tests that come with its prompt, inside the sandbox."""
