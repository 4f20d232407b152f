"""References between stages: the product of a stage, and the notation with which a setting refers to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic_core import PydanticCustomError, core_schema


@dataclass(frozen=True)
class Product:
    """Result of a stage: the folder `path`."""

    path: Path


P = TypeVar("P", bound=Product)


class Ref(Generic[P]):
    """Reference to another stage's product: `${out:stage}`. `Ref[Checkpoint]` in an annotation states which kind of
    product is accepted.
    """

    marker: ClassVar[str] = "${out:"

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __repr__(self) -> str:
        return f"${{out:{self.stage}}}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.stage == self.stage

    def __hash__(self) -> int:
        return hash(("Ref", self.stage))

    @classmethod
    def parse(cls, text: str) -> Ref[P] | None:
        """Parse `"${out:x}"` as a reference; None for any other text."""
        if text.startswith(cls.marker) and text.endswith("}"):
            return cls(text[len(cls.marker) : -1].strip())
        return None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        product = (get_args(source) or (Product,))[0]

        def check(value: Any) -> Ref[Any]:
            ref = value if isinstance(value, Ref) else cls.parse(value) if isinstance(value, str) else None
            if ref is None:
                raise PydanticCustomError(
                    "reference_type", f"wants ${{out:stage}} of a stage that makes {product.__name__}"
                )
            return ref

        return core_schema.no_info_plain_validator_function(
            check,
            metadata={
                "pydantic_js_functions": [lambda _schema, _handler: {"type": "string", "pattern": r"^\$\{out:.+\}$"}]
            },
            serialization=core_schema.plain_serializer_function_ser_schema(repr),
        )
