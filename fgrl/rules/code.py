"""What the check that runs Python of a data set is called, and the response among its arguments."""

from __future__ import annotations

CODE_CHECKER = "code:checker"
RESPONSE = "response"
