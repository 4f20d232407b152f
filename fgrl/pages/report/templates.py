"""Templates of the report, and their environment: everything is escaped, and a missing name is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2

HERE = Path(__file__).parent


def environment() -> jinja2.Environment:
    """Return a new environment, to which a page adds its filters."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
