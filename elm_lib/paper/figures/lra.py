"""What the Long Range Arena's samples look like."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from elm_lib.datasets.lra.schema import FIRST_SYMBOL, Split
from elm_lib.datasets.lra.text import decode
from elm_lib.simulate.symbols import listops


def pictures(splits: dict[str, Split], n: int = 4) -> Figure:
    """The first n pictures of each split given, {title: split}, one split a row; the class above each."""
    figure, axes = plt.subplots(
        len(splits), n, figsize=(1.5 * n, 1.65 * len(splits)), squeeze=False, constrained_layout=True
    )
    for row, (title, split) in zip(axes, splits.items()):
        for i, axis in enumerate(row):
            axis.set(xticks=[], yticks=[])
            if i < len(split):
                (levels,) = split.sequences(i)
                side = int(np.sqrt(len(levels)))
                axis.imshow(levels.reshape(side, side), cmap="gray", vmin=0, vmax=split.n_tokens - 1)
                axis.set_title(f"class {split.label[i]}")
        row[0].set_ylabel(title)
    return figure


def written(split: Split, i: int, width: int = 110) -> str:
    """Sample i of a task of texts, as people write it, cut to `width` characters a sequence, and its class."""
    if split.task == "listops":
        texts = [listops.text(symbols - FIRST_SYMBOL) for symbols in split.sequences(i)]
    else:
        texts = [decode(symbols, split.provenance["byte_values"]) for symbols in split.sequences(i)]
    short = [text if len(text) <= width else text[: width - 2] + " …" for text in texts]
    return "\n".join([*short, f"    class {split.label[i]}"])


def summary(splits: dict[str, Split]) -> list[str]:
    """One line a split: samples, symbols a sequence (median and most), part of the most frequent class."""
    lines = []
    for name, split in splits.items():
        lengths, largest = split.lengths, np.bincount(split.label).max() / len(split)
        lines.append(
            f"{split.task:12s} {name:5s} {len(split):6d} samples, {np.median(lengths):7.0f} symbols, at most {lengths.max():5d}; "
            f"most frequent class {100 * largest:5.1f} %"
        )
    return lines
