"""Settings that refuse what they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Frozen; refuses unknown keys and wrong types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def check_sizes(source: str, sizes: dict[str, int | None], of: str = "", unit: str = "") -> None:
    """Raise ValueError where generated data have no size. null is for real data, which are taken whole."""
    missing = [name for name, size in sizes.items() if size is None]
    if source == "generated" and missing:
        raise ValueError(f"{of}{missing} is null, which only real data can have: give a number{unit}")
