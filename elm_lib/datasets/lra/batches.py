"""Batches of a Long Range Arena task for torch: one-hot symbols as sparse input, labels, lengths.

    data = LraData("data/laptop/lra", "listops")
    batch = data.batch(seed=0, epoch=0, step=0, batch_size=384)
    y, _ = model(batch.x)                         # (B, T, d_o)
    last = y[torch.arange(len(y)), batch.length - 1]   # the output after the last symbol

What a batch holds is a pure function of (seed, epoch, step, batch_size): it does not matter who reads it, or when.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elm_lib.datasets.lra.schema import PAD, SPLITS, Split, form, open_split
from elm_lib.kernels.spikes import Spikes
from elm_lib.support.errors import DataError


@dataclass(frozen=True, eq=False)
class Batch:
    """B samples of S sequences (S = 2 for retrieval, else 1), padded to T steps. Small until `x` spells it out."""

    tokens: Tensor  # uint8 (S, B, T); 0 in padding
    lengths: Tensor  # int64 (S, B): valid steps, class token included
    label: Tensor  # int64 (B,)
    index: Tensor  # int64 (B,): place in the split
    n_tokens: int
    is_full: bool  # no sequence is shorter than T
    value: Tensor | None = None  # float (S, B, T): what each step's entry is worth; None: 1

    @property
    def x(self) -> Spikes:
        """One entry in each valid step, of value 1 unless `dropped`, none in padding: (S B, T, n_tokens).

        Of retrieval, the B first sequences come before the B second ones: one network reads both, and
        `y.view(2, B, ...)` parts them.
        """
        sequences, samples, steps = self.tokens.shape
        flat, rows = self.tokens.flatten(), sequences * samples * steps
        value = torch.ones(rows, device=flat.device) if self.value is None else self.value.flatten()
        if self.is_full:
            row_ptr = torch.arange(rows + 1, device=flat.device)
        else:
            valid = (torch.arange(steps, device=flat.device) < self.length[:, None]).flatten()
            row_ptr, flat, value = F.pad(valid.cumsum(0), (1, 0)), flat[valid], value[valid]
        return Spikes(row_ptr, flat.long(), value, (sequences * samples, steps, self.n_tokens))

    @property
    def length(self) -> Tensor:
        """Valid steps of each row of `x`, int64 (S B,)."""
        return self.lengths.flatten()

    def __len__(self) -> int:
        return self.label.numel()

    def dropped(self, p: float, rng: np.random.Generator) -> Batch:
        """The same with input dropout: a step's entry is 0 with probability p, else 1 / (1 - p)."""
        keep = rng.random(tuple(self.tokens.shape), np.float32) >= p
        return replace(self, value=torch.from_numpy(keep.astype(np.float32)) / (1 - p)) if p else self

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        return self._each(Tensor.pin_memory)

    def pieces(self, n: int, trim: bool = True) -> list[tuple[Batch, float]]:
        """At most n parts of nearly equal size, each with its share of the batch, for the accumulation of gradients;
        call it before `to`.

        trim: shorten each part to its longest sequence. Rows are in order of length, so the early parts are short.
        """
        parts = []
        for at in torch.tensor_split(torch.arange(len(self)), min(n, len(self))):
            rows = slice(int(at[0]), int(at[-1]) + 1)
            lengths = self.lengths[:, rows]
            steps = int(lengths.max()) if trim else self.tokens.shape[-1]
            part = replace(
                self,
                tokens=self.tokens[:, rows, :steps],
                lengths=lengths,
                label=self.label[rows],
                index=self.index[rows],
                is_full=bool((lengths == steps).all()),
                value=None if self.value is None else self.value[:, rows, :steps],
            )
            parts.append((part, len(part) / len(self)))
        return parts

    def _each(self, function) -> Batch:
        names = ("tokens", "lengths", "label", "index") + (() if self.value is None else ("value",))
        return replace(self, **{name: function(getattr(self, name)) for name in names})


def read_batch(split: Split, indices: np.ndarray, *, class_token: str = "end", steps: int | None = None) -> Batch:
    """The samples `indices` (B,) of a split, in order of length.

    class_token: "end", "start" or "none": where a text gets its class token; images have none
    steps: T; None: that of the longest sequence. Raises ValueError where a sequence is longer.
    """
    indices = np.asarray(indices, np.int64)
    length = split.lengths[indices]
    order = np.argsort(length.max(1), kind="stable")
    indices, length = indices[order], length[order]
    with_class = class_token if split.class_token >= 0 else "none"
    extra, shift = int(with_class != "none"), int(with_class == "start")
    total = length + extra
    if steps is not None and total.max() > steps:
        raise ValueError(f"{split.path}: a sequence of {total.max()} steps does not fit into {steps}")
    steps = int(total.max()) if steps is None else steps
    out = np.full((split.n_sequences, len(indices), steps), PAD, np.uint8)
    tokens = split.tokens
    for s in range(split.n_sequences):
        starts = split.row_ptr[indices * split.n_sequences + s].tolist()
        for row, start, n in zip(out[s], starts, length[:, s].tolist()):
            row[shift : shift + n] = tokens[start : start + n]
        if shift:
            out[s, :, 0] = split.class_token
        elif extra:
            out[s, np.arange(len(indices)), length[:, s]] = split.class_token
    return Batch(
        torch.from_numpy(out),
        torch.from_numpy(np.ascontiguousarray(total.T)),
        torch.from_numpy(split.label[indices].astype(np.int64)),
        torch.from_numpy(indices),
        split.n_tokens,
        bool((total == steps).all()),
    )


def training_order(
    lengths: np.ndarray, seed: int, epoch: int, batch_size: int, pool: int = 1, turn: int = 0
) -> np.ndarray:
    """Which samples each batch of an epoch holds: int64 (steps, batch_size), each sample at most once.

    lengths (N,). Up to batch_size - 1 samples are left out of an epoch, other ones each time; fewer samples than
    batch_size make one batch in which some come twice.
    turn: a further order of the same epoch, for epochs that are longer than the data.
    pool: so many batches are drawn together, and their samples sorted into them by length, which saves padding; 1: not.
    """
    rng = np.random.default_rng([seed, epoch, turn])
    order = rng.permutation(len(lengths))
    steps = max(1, len(order) // batch_size)
    batches = np.resize(order, (steps, batch_size))
    if pool > 1:
        for first in range(0, steps, pool):
            some = batches[first : first + pool].ravel()
            batches[first : first + pool] = some[np.argsort(lengths[some], kind="stable")].reshape(-1, batch_size)
        batches = batches[rng.permutation(steps)]
    return batches


class LraData:
    """The three splits of one task; each file is opened at its first use.

    folder: e.g. data/laptop/lra, made by `dvc repro preprocess_lra`; task: listops, text, retrieval, image, pathfinder,
      pathfinder_x, digits
    class_token, steps: see `read_batch`. steps = "longest" pads every batch to `longest`.
    pool: see `training_order`.
    """

    def __init__(
        self,
        folder: str | Path,
        task: str,
        *,
        class_token: str = "end",
        steps: int | Literal["longest"] | None = None,
        pool: int = 1,
    ) -> None:
        if class_token not in ("end", "start", "none"):
            raise ValueError(f"class_token = {class_token!r}: must be 'end', 'start' or 'none'")
        self.folder, self.task, self.class_token, self.pool = Path(folder) / task, task, class_token, pool
        self.n_tokens, self.n_classes, self.n_sequences, self._has_class_token = form(task)
        self._splits: dict[str, Split] = {}
        self.steps = self.longest if steps == "longest" else steps
        self._order = lru_cache(maxsize=2)(self._draw_order)

    def split(self, name: str) -> Split:
        """One split, opened at its first use. Raises DataError."""
        if name not in self._splits:
            found = open_split(self.folder / f"{name}.h5")
            source = next(iter(self._splits.values()), found).source
            if (found.task, found.source) != (self.task, source):
                raise DataError(f"{found.path}: holds {found.task}, {found.source}; expected {self.task}, {source}")
            self._splits[name] = found
        return self._splits[name]

    @property
    def splits(self) -> dict[str, Split]:
        """All three splits."""
        return {name: self.split(name) for name in SPLITS}

    @property
    def source(self) -> str:
        """One of `elm_lib.datasets.lra.schema.SOURCES`."""
        return self.split("test").source

    @cached_property
    def longest(self) -> int:
        """Steps of the longest sequence of all splits, its class token included."""
        longest = max(int(split.lengths.max()) for split in self.splits.values())
        return longest + (self._has_class_token and self.class_token != "none")

    @property
    def manifest(self) -> dict:
        """manifest.json of the task, see `elm_lib.support.manifest`."""
        return json.loads((self.folder / "manifest.json").read_text())

    def size(self, split: str) -> int:
        """Samples of a split."""
        return len(self.split(split))

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(1, self.size("train") // batch_size)

    def batch(self, seed: int, epoch: int, step: int, batch_size: int) -> Batch:
        """Training batch `step` of `epoch`; past the end of the data the epoch goes on with a further order of its
        own."""
        turn, step = divmod(step, self.steps_per_epoch(batch_size))
        return self._read("train", self._order(seed, epoch, turn, batch_size)[step])

    def split_batches(self, split: str, batch_size: int, most: int | None = None) -> Iterator[Batch]:
        """Every sample of a split once, from the shortest to the longest; the last batch may be smaller.

        most: of a larger split only so many, evenly spread over it.
        """
        n = self.size(split)
        some = np.arange(n) if most is None or most >= n else np.linspace(0, n - 1, most).astype(np.int64)
        order = some[np.argsort(self.split(split).lengths[some].max(1), kind="stable")]
        for first in range(0, len(order), batch_size):
            yield self._read(split, order[first : first + batch_size])

    def _read(self, split: str, indices: np.ndarray) -> Batch:
        return read_batch(self.split(split), indices, class_token=self.class_token, steps=self.steps)

    def _draw_order(self, seed: int, epoch: int, turn: int, batch_size: int) -> np.ndarray:
        lengths = self.split("train").lengths.max(1)
        return training_order(lengths, seed, epoch, batch_size, self.pool, turn)
