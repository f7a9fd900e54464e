"""How the spoken digits are made: the `shd` entry of a profile."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from elm_lib.support.strict import Count, Seed, Strict, check_sizes


class Shd(Strict):
    """Spiking Heidelberg Digits: generated utterances in the train file (a fifth of them for validation) and in the
    test file."""

    source: Literal["generated", "real"]
    seed: Seed
    train: Count | None
    test: Count | None
    valid_pairs: Count  # of SHD-Adding
    test_pairs: Count

    @model_validator(mode="after")
    def _generated_data_have_a_size(self):
        check_sizes(self.source, {"train": self.train, "test": self.test}, unit=" of utterances")
        return self

    def generated_sizes(self) -> dict[str, int]:
        """Utterances of the generated files, all of which have a size."""
        return {name: size for name, size in (("train", self.train), ("test", self.test)) if size is not None}
