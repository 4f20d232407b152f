"""The result of an export."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fgrl.exchange.publishing.lineage import Base

if TYPE_CHECKING:
    from fgrl.exchange.publishing.agreement import Agreement


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    folder: Path
    form: Literal["adapter", "weights"]
    head: str
    dtype: str
    why: str
    """Reason for whole weights although the stage has an adapter; empty otherwise."""
    loads: str
    """Name of the class that loads it."""
    base: Base | None
    check: Agreement
    quantized: bool
    """True if it was trained on a base with 4-bit weights."""
    pushed: str | None = None
    """Its address on the hub, after an upload."""

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "form": self.form, "head": self.head, "dtype": self.dtype, "why": self.why,
            "loads": self.loads, "base": None if self.base is None else self.base.name,
            "check": {name: value for name, value in asdict(self.check).items() if value is not None},
        }  # fmt: skip
