"""What a prediction leaves behind of each simulation, so that scores can be had again, or bootstrapped, without the
model.

spike_hist   uint16  (n, 256)  predicted spike probabilities in bins with a spike, counted by their logit
silent_hist  uint16  (n, 256)  the same in bins without one
sums         float64 (n, 6)    n, sum v, sum v^2, sum y, sum y^2, sum v y; v predicted, y target voltage in mV
whole        float64 (n, 6)    the same over the whole simulation; all others leave out its first 500 ms
spikes       int64   (n,)      output spikes of the whole simulation
"""

from __future__ import annotations

import numpy as np

from elm_lib.datasets.neuronio.metrics import FALSE_POSITIVE_RATES, MOST_SPIKES, START_MS

EDGES = np.linspace(-16, 16, 257)  # of the logit; what lies beyond counts in the outer bins
Arrays = dict[str, np.ndarray]


def statistics(p: np.ndarray, v: np.ndarray, spike: np.ndarray, voltage: np.ndarray) -> Arrays:
    """The arrays above, of what `task.predict_all` returns: (n, duration_ms) each.

    A prediction that is no number is in no histogram, and makes the sums NaN.
    """
    with np.errstate(divide="ignore"):
        logit = np.log(p) - np.log1p(-p)
    late, spikes = logit[:, START_MS:], spike > 0.5
    return {
        "spike_hist": _histograms(late, spikes[:, START_MS:]),
        "silent_hist": _histograms(late, ~spikes[:, START_MS:]),
        "sums": _sums(v[:, START_MS:], voltage[:, START_MS:]),
        "whole": _sums(v, voltage),
        "spikes": spikes.sum(1),
    }


def scores_from_statistics(arrays: Arrays, kept: np.ndarray | None = None) -> dict[str, dict[str, float]]:
    """Scores by both protocols of `metrics.score`, but for the mean absolute error.

    kept  simulations to take, a mask or indices; an index may come several times, as in a bootstrap
    The area under the ROC counts predictions of one bin as ties, half right, which costs it 1e-4 at most near a score
    of 0.99. True-positive rates are interpolated between the points of the ROC. Scores are NaN where no ROC exists or a
    prediction is no number.
    """
    arrays = arrays if kept is None else {name: array[kept] for name, array in arrays.items()}
    n, sum_v, sum_vv, sum_y, sum_yy, _ = arrays["whole"].sum(0)
    spread = np.sqrt(max(sum_vv / n - (sum_v / n) ** 2, 0))
    gain = np.sqrt(max(sum_yy / n - (sum_y / n) ** 2, 0)) / (spread if spread > 0 else 1.0)
    few = {name: array[arrays["spikes"] <= MOST_SPIKES] for name, array in arrays.items()}
    return {
        "clean": _spike_scores(arrays) | _voltage_scores(arrays["sums"], 1.0, 0.0),
        "released": _spike_scores(few) | _voltage_scores(few["sums"], gain, sum_y / n - gain * sum_v / n),
    }


def _histograms(logit: np.ndarray, where: np.ndarray) -> np.ndarray:
    kept = where & ~np.isnan(logit)
    bins = np.clip(np.digitize(logit[kept], EDGES) - 1, 0, len(EDGES) - 2)
    row = np.nonzero(kept)[0]
    size = len(EDGES) - 1
    return np.bincount(row * size + bins, minlength=len(logit) * size).reshape(-1, size).astype(np.uint16)


def _sums(v: np.ndarray, y: np.ndarray) -> np.ndarray:
    v, y = np.asarray(v, np.float64), np.asarray(y, np.float64)
    columns = (np.ones_like(v), v, v**2, y, y**2, v * y)
    return np.stack([column.sum(1) for column in columns], 1)


def _spike_scores(arrays: Arrays) -> dict[str, float]:
    spike, silent = (arrays[name].sum(0, dtype=np.float64)[::-1] for name in ("spike_hist", "silent_hist"))
    names = ["auc", *(f"tp_at_{rate:g}_fp" for rate in FALSE_POSITIVE_RATES)]
    whole = spike.sum() + silent.sum() == arrays["sums"][:, 0].sum()
    if not (spike.sum() and silent.sum() and whole):
        return dict.fromkeys(names, float("nan"))
    tp, fp = (np.concatenate([[0], np.cumsum(counts)]) / counts.sum() for counts in (spike, silent))
    rates = [float(np.interp(rate, fp, tp)) for rate in FALSE_POSITIVE_RATES]
    return dict(zip(names, [float(np.trapezoid(tp, fp)), *rates]))


def _voltage_scores(sums: np.ndarray, gain: float, shift: float) -> dict[str, float]:
    """Of the prediction gain v + shift."""
    n, v, vv, y, yy, vy = sums.sum(0)
    if not n:
        return {"rmse": float("nan"), "explained_variance": float("nan")}
    squares = gain**2 * vv + n * shift**2 + yy + 2 * (gain * shift * v - gain * vy - shift * y)
    error, variance = max(squares / n, 0.0), yy / n - (y / n) ** 2
    explained = 100 * (1 - error / variance) if variance > 0 else float("nan")
    return {"rmse": float(np.sqrt(error)), "explained_variance": float(explained)}
