"""How the simulations of NeuronIO are made: the `neuronio` entry of a profile."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from elm_lib.support.strict import Count, Seed, Strict, check_sizes


class Split(Strict):
    """Generated simulations: how many, ms each, input ranges, integration step in ms."""

    simulations: Count | None
    duration_ms: int = Field(ge=1100, le=10_000_000)
    ranges: Literal["narrow", "script"]
    dt_ms: Literal[0.025, 0.05, 0.1]  # type: ignore[valid-type]  # pydantic takes them


class NeuronIO(Strict):
    source: Literal["generated", "real"]
    morphology: Literal["default", "exact"]
    seed: Seed
    train: Split
    valid: Split
    test: Split

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        sizes = {name: getattr(self, name).simulations for name in ("train", "valid", "test")}
        check_sizes(self.source, sizes, of="simulations of ")
        return self
