"""JSON schemas for answers of an endpoint (`response_format`), and the weaker modes to send if the endpoint refuses
them.
"""

from __future__ import annotations

from typing import Any, Literal

Mode = Literal["schema", "json_object", "none"]
Setting = Literal["auto", "schema", "json_object", "none"]
"""Mode of the setting. auto: schema, and a weaker mode each time that the endpoint refuses the mode."""
WEAKER: dict[Mode, Mode] = {"schema": "json_object", "json_object": "none"}
REFUSING_STATUSES = (400, 415, 422, 501)
REFUSING_WORDS = ("response_format", "json_schema", "schema")


def weaker(sent: Mode, status: int, message: str) -> Mode | None:
    """Return the mode to try in place of `sent`, if this error means that the endpoint does not support it."""
    unsupported = status in REFUSING_STATUSES and any(word in message for word in REFUSING_WORDS)
    return WEAKER.get(sent) if unsupported else None


def response_format(schema: dict[str, Any], mode: Literal["schema", "json_object"]) -> dict[str, Any]:
    """Return the value of `response_format` for a JSON schema."""
    if mode == "json_object":
        return {"type": "json_object"}
    title = str(schema.get("title", "answer"))
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in title)[:64]
    return {
        "type": "json_schema",
        "json_schema": {"name": name or "answer", "schema": schema, "strict": _can_be_strict(schema)},
    }


def _can_be_strict(schema: Any) -> bool:
    """Return True if the schema fits OpenAI's strict mode, which needs every property to be required and allows no
    additional ones.
    """
    if isinstance(schema, list):
        return all(_can_be_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", [])) != set(properties):
            return False
    return all(_can_be_strict(value) for value in schema.values())
