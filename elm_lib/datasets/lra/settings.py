"""How the tasks of the Long Range Arena are made: the `lra` entry of a profile."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from elm_lib.support.strict import Count, Seed, Strict, check_sizes


class LraTask(Strict):
    """One task of the Long Range Arena: how many samples; lengths in symbols, both exclusive for ListOps."""

    source: Literal["generated", "real"]
    train: Count | None
    valid: Count | None
    test: Count | None
    min_length: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    max_length: Count | None = None

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        check_sizes(self.source, self.sizes())
        return self

    @property
    def lengths(self) -> tuple[int, int]:
        """min_length and max_length of generated ListOps, which has both."""
        assert self.min_length is not None and self.max_length is not None  # `Lra` refuses it
        return self.min_length, self.max_length

    def generated_sizes(self) -> dict[str, int]:
        """Sizes of generated data, all of which have one."""
        return {split: size for split, size in self.sizes().items() if size is not None}

    def sizes(self) -> dict[str, int | None]:
        return {"train": self.train, "valid": self.valid, "test": self.test}


class Lra(Strict):
    """The tasks that a profile prepares; null: not."""

    seed: Seed
    listops: LraTask | None
    text: LraTask | None
    retrieval: LraTask | None
    image: LraTask | None
    pathfinder: LraTask | None
    pathfinder_x: LraTask | None
    digits: LraTask | None = None

    @model_validator(mode="after")
    def _lengths_fit_the_task(self):
        for name, task in self.tasks():
            lengths = (task.min_length, task.max_length)
            if name == "listops" and task.source == "generated":
                if task.min_length is None or task.max_length is None or task.min_length + 1 >= task.max_length:
                    raise ValueError(
                        f"{name}: min_length, max_length = {lengths}: a length must lie between two numbers"
                    )
            elif name == "digits" and task.source != "generated":
                raise ValueError("digits: source: they come with scikit-learn, so it must be 'generated'")
            elif task.min_length is not None or (name not in ("text", "retrieval") and task.max_length is not None):
                raise ValueError(
                    f"{name}: min_length, max_length = {lengths}: only texts and generated ListOps have them"
                )
        return self

    def tasks(self) -> list[tuple[str, LraTask]]:
        """The tasks that are prepared, by name."""
        named = [(name, getattr(self, name)) for name in type(self).model_fields if name != "seed"]
        return [(name, task) for name, task in named if task is not None]
