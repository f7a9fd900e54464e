"""Sampling error of a test score: the spread of the score over test sets drawn again from the one there is.

A test set of n simulations (or words) is one draw of many possible ones. The bootstrap draws n of the n with replacement, 1,000
times, and scores each draw (Efron 1979, doi:10.1214/aos/1176344552). Two runs with test sets of one size are drawn alike, so the
spread of the difference of their replicates is the paired one. Draws follow from a fixed seed: the same files give the same error.

Replicates come from what a run keeps in its npz, not from the model:
  NeuronIO      spike_hist, silent_hist (n, 256): time steps by bin of the predicted spike probability, of steps with and without a spike
                sums, whole (n, 6): n, sum v, sum v^2, sum y, sum y^2, sum v y of predicted v and target y (mV), from 500 ms on and of all
                spikes (n,): output spikes of each simulation
  digits, LRA   right (n,): whether each word was named right
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from elm_lib.support.errors import DataError

RESAMPLES = 1000
SEED = 20240116
MOST_SPIKES = 24  # the released evaluation leaves out simulations with more output spikes
RATES = {"tp_at_0.0025_fp": 0.0025, "tp_at_0.01_fp": 0.01}


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
    if column == "test_accuracy":
        return accuracy(kept["right"]) if "right" in kept else None
    if not column.startswith("test_") or "sums" not in kept:
        return None
    released = column.startswith("test_released_")
    return neuronio(kept, released=released).get(column.removeprefix("test_released_" if released else "test_"))


def accuracy(right: np.ndarray) -> np.ndarray:
    """Accuracy in each draw of words, (RESAMPLES,). right: (n,) bool."""
    return draws(len(right)) @ right.astype(np.float32) / len(right)


def neuronio(kept: dict[str, np.ndarray], *, released: bool) -> dict[str, np.ndarray]:
    """AUC, true-positive rates and RMSE (mV) in each draw of simulations, (RESAMPLES,) each.

    released: predicted voltages are shifted and scaled to the target's mean and standard deviation over the whole draw, and
    simulations of more than 24 output spikes are left out, as in `elm_lib.datasets.neuronio.task.score`.
    """
    weight = draws(len(kept["sums"])).astype(np.float64)
    counted = weight * (kept["spikes"] <= MOST_SPIKES) if released else weight
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw without a spike has no ROC: NaN
        scores = _spikes(counted @ kept["spike_hist"], counted @ kept["silent_hist"])
        gain, shift = _rescaling(*(weight @ kept["whole"]).T) if released else (1.0, 0.0)
        n, v, vv, y, yy, vy = (counted @ kept["sums"]).T
        square = gain**2 * vv + 2 * gain * shift * v + shift**2 * n - 2 * gain * vy - 2 * shift * y + yy
        return scores | {"rmse": np.sqrt(np.maximum(square, 0) / n)}


def _spikes(spike: np.ndarray, silent: np.ndarray) -> dict[str, np.ndarray]:
    """AUC and true-positive rates of histograms (resamples, bins), bins in the order of rising probability."""
    true, false = spike.sum(1, keepdims=True), silent.sum(1, keepdims=True)
    below = silent.cumsum(1) - silent
    found = {"auc": (spike * (below + silent / 2)).sum(1) / (true * false)[:, 0]}  # ties count half
    tp, fp = (counts[:, ::-1].cumsum(1) / total for counts, total in ((spike, true), (silent, false)))
    for name, rate in RATES.items():
        found[name] = np.take_along_axis(tp, np.abs(fp - rate).argmin(1)[:, None], 1)[:, 0]
    return found


def _rescaling(n, v, vv, y, yy, vy) -> tuple[np.ndarray, np.ndarray]:
    """Gain and shift that give the prediction the target's mean and standard deviation."""
    spread = np.sqrt(np.maximum(vv / n - (v / n) ** 2, 0))
    gain = np.sqrt(np.maximum(yy / n - (y / n) ** 2, 0)) / np.where(spread > 0, spread, 1.0)
    return gain, y / n - gain * v / n


def error(values: np.ndarray | None) -> float | None:
    """Sampling error: the standard deviation of replicates; None where they are not known."""
    return None if values is None else float(np.nanstd(values))


@lru_cache(maxsize=256)
def _read(path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise DataError(f"{path} is missing: restore it from git, or train the run again") from None
    except (OSError, ValueError, KeyError) as problem:
        raise DataError(f"{path} cannot be read ({problem}): restore it from git, or train the run again") from None
