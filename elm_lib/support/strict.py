"""Settings that refuse what they do not know."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10_000_000)]  # of samples, steps, ms: more is a slip of the pen
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


class Strict(BaseModel):
    """Frozen; refuses unknown keys, wrong types, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def check_sizes(source: str, sizes: dict[str, int | None], of: str = "", unit: str = "") -> None:
    """Raise ValueError where generated data have no size. null is for real data, which are taken whole."""
    missing = [name for name, size in sizes.items() if size is None]
    if source == "generated" and missing:
        raise ValueError(f"{of}{missing} is null, which only real data can have: give a number{unit}")
