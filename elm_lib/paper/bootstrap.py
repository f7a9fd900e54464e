"""Sampling error of a test score: the spread of the score over test sets drawn again from the one there is.

A test set of n simulations (or words) is one draw of many possible ones. The bootstrap draws n of the n with
replacement, 1,000 times, and scores each draw (Efron 1979, doi:10.1214/aos/1176344552). Test sets of one size are drawn
alike, so the spread of a difference of two runs' replicates is the paired one. Draws follow from a fixed seed: the same
files give the same error.

Replicates come from the npz that a run keeps, not from its model: `elm_lib.datasets.neuronio.statistics` of each
simulation; for digits and the Long Range Arena `right`, bool (n,): whether each word was named right. So an accuracy
has its binomial error. Digits also have `unseen` and `seen`, whose speakers were not, and were, in training, and
`valid_right`, of the words of validation.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from elm_lib.datasets.neuronio.metrics import FALSE_POSITIVE_RATES, MOST_SPIKES
from elm_lib.support.errors import DataError
from elm_lib.support.files import read_npz

# score -> arrays of the words that were named right, and of those that are meant
ACCURACIES: dict[str, tuple[str, str | None]] = {
    "test_accuracy": ("right", None),
    "test_accuracy_unseen_speakers": ("right", "unseen"),
    "test_accuracy_seen_speakers": ("right", "seen"),
    "valid_accuracy": ("valid_right", None),
}
RESAMPLES = 1000
SEED = 20240116


@lru_cache(maxsize=2)
def draws(n: int, resamples: int = RESAMPLES) -> np.ndarray:
    """How often each of n samples occurs in each draw, float32 (resamples, n); rows sum to n."""
    generator = np.random.default_rng([SEED, n])
    counts = np.stack([np.bincount(generator.integers(n, size=n), minlength=n) for _ in range(resamples)])
    counts = counts.astype(np.float32)
    counts.flags.writeable = False
    return counts


def replicates(path: str | Path, column: str) -> np.ndarray | None:
    """A test score of one run in each draw, (RESAMPLES,); None for a score that the file says nothing about.

    path    npz of a run
    column  a score's name in the table of runs: test_auc, test_released_rmse, test_accuracy, ...
    Raises DataError when the file is missing or broken.
    """
    kept = _read(str(path))
    if column in ACCURACIES:
        return accuracy(kept, *ACCURACIES[column])
    if not column.startswith("test_") or "sums" not in kept:
        return None
    released = column.startswith("test_released_")
    return neuronio(kept, released=released).get(column.removeprefix("test_released_" if released else "test_"))


def accuracy(kept: dict[str, np.ndarray], right: str, among: str | None) -> np.ndarray | None:
    """Accuracy in each draw of words, (RESAMPLES,); None where an array is missing, or no word is among those meant.

    right, among: names of arrays (n,) bool; None: among all
    """
    if right not in kept or (among is not None and among not in kept):
        return None
    named, meant = kept[right], np.ones(len(kept[right]), bool) if among is None else kept[among]
    if not meant.any():
        return None
    drawn = draws(len(named))
    return drawn @ (named & meant).astype(np.float32) / (drawn @ meant.astype(np.float32))


def neuronio(kept: dict[str, np.ndarray], *, released: bool) -> dict[str, np.ndarray]:
    """AUC, true-positive rates and RMSE (mV) in each draw of simulations, (RESAMPLES,) each.

    released: as in `elm_lib.datasets.neuronio.metrics.score`, predicted voltages are shifted and scaled to the target's
    mean and standard deviation over the draw, and simulations of more than 24 output spikes are left out.
    """
    weight = draws(len(kept["sums"])).astype(np.float64)
    counted = weight * (kept["spikes"] <= MOST_SPIKES) if released else weight
    kept = {name: values.astype(np.float64) for name, values in kept.items()}
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw without a spike has no ROC: NaN
        spike, silent = (counted @ kept[name] for name in ("spike_hist", "silent_hist"))
        scores = _spikes(spike, silent)
        gain, shift = _rescaling(*(weight @ kept["whole"]).T) if released else (1.0, 0.0)
        n, v, vv, y, yy, vy = (counted @ kept["sums"]).T
        square = gain**2 * vv + 2 * gain * shift * v + shift**2 * n - 2 * gain * vy - 2 * shift * y + yy
        scores["rmse"] = np.sqrt(np.maximum(square, 0) / n)
        binned = spike.sum(1) + silent.sum(1) == n  # predictions that are no number are in no bin
        return {name: np.where(binned, values, np.nan) for name, values in scores.items()}


def _spikes(spike: np.ndarray, silent: np.ndarray) -> dict[str, np.ndarray]:
    """AUC and true-positive rates of histograms (resamples, bins), bins in the order of rising probability."""
    true, false = spike.sum(1, keepdims=True), silent.sum(1, keepdims=True)
    below = silent.cumsum(1) - silent
    found = {"auc": (spike * (below + silent / 2)).sum(1) / (true * false)[:, 0]}  # ties count half
    start = np.zeros_like(true)
    tp, fp = (np.hstack([start, counts[:, ::-1].cumsum(1)]) / n for counts, n in ((spike, true), (silent, false)))
    for rate in FALSE_POSITIVE_RATES:
        after = np.maximum((fp >= rate).argmax(1), 1)[:, None]  # the ROC passes the rate between two of its points
        (low, high), (worse, better) = (
            [np.take_along_axis(x, k, 1)[:, 0] for k in (after - 1, after)] for x in (fp, tp)
        )
        found[f"tp_at_{rate:g}_fp"] = worse + (better - worse) * (rate - low) / (high - low)
    return found


def _rescaling(n, v, vv, y, yy, vy) -> tuple[np.ndarray, np.ndarray]:
    """Gain and shift that give the prediction the target's mean and standard deviation."""
    spread = np.sqrt(np.maximum(vv / n - (v / n) ** 2, 0))
    gain = np.sqrt(np.maximum(yy / n - (y / n) ** 2, 0)) / np.where(spread > 0, spread, 1.0)
    return gain, y / n - gain * v / n


def error(values: np.ndarray | None) -> float | None:
    """Sampling error: the standard deviation of replicates; None where they are not known or most are no number."""
    if values is None or np.isnan(values).mean() > 0.5:
        return None
    return float(np.nanstd(values))


@lru_cache(maxsize=256)
def _read(path: str) -> dict[str, np.ndarray]:
    try:
        return read_npz(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: restore it from git, or train the run again") from None
    except DataError as problem:
        raise DataError(f"{path} cannot be read: restore it from git, or train the run again ({problem})") from None
