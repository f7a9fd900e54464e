"""Scores of a spike and voltage prediction, as published for NeuronIO (Tables S8 to S10, Figure 4c)."""

from __future__ import annotations

import numpy as np

FALSE_POSITIVE_RATES = (0.0025, 0.01)
START_MS = 500  # the first 500 ms of a simulation are not scored
MOST_SPIKES = 24  # the released evaluation leaves out simulations with more output spikes


def spike_scores(target: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Area under the full ROC, and the true-positive rate at the ROC point nearest to each false-positive rate.

    target  0/1, any shape;  score  same shape, higher is more likely a spike.
    Without a single spike (or without silence) no ROC exists: every score is NaN. NaN or inf predictions give NaN.
    """
    from sklearn.metrics import roc_auc_score, roc_curve  # takes a second or two: what scores nothing does without

    target, score = np.asarray(target).ravel() > 0.5, np.asarray(score, np.float64).ravel()
    names = ["auc", *(f"tp_at_{fp:g}_fp" for fp in FALSE_POSITIVE_RATES)]
    if target.all() or not target.any() or not np.isfinite(score).all():
        return dict.fromkeys(names, float("nan"))
    fp, tp, _ = roc_curve(target, score, drop_intermediate=False)
    nearest = [float(tp[np.argmin(np.abs(fp - rate))]) for rate in FALSE_POSITIVE_RATES]
    return dict(zip(names, [float(roc_auc_score(target, score)), *nearest]))


def voltage_scores(target_mv: np.ndarray, prediction_mv: np.ndarray) -> dict[str, float]:
    """RMSE (mV), MAE (mV) and explained variance (%) of a voltage prediction; both any one shape, mV."""
    target, error = np.asarray(target_mv, np.float64), np.asarray(prediction_mv, np.float64) - target_mv
    variance = float(np.var(target))
    explained = 100 * (1 - float(np.mean(error**2)) / variance) if variance > 0 else float("nan")
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "explained_variance": explained,
    }


def score(p: np.ndarray, v: np.ndarray, spike: np.ndarray, voltage: np.ndarray) -> dict[str, dict[str, float]]:
    """Exact scores by two protocols, from 500 ms on.

    p, v            predicted spike probability and voltage (mV), (n, duration_ms) each
    spike, voltage  of the simulation: 0/1 and mV
    clean     predictions as they are, every simulation
    released  the released evaluation, for numbers comparable with the published ones: the predicted voltage is shifted
              and scaled to the targets' overall mean and standard deviation, simulations with more than 24 output
              spikes are left out
    """
    clean = _scores(spike, p, voltage, v)
    spread = v.std()
    v = (v - v.mean()) / (spread if spread > 0 else 1.0) * voltage.std() + voltage.mean()
    kept = spike.sum(1) <= MOST_SPIKES
    return {"clean": clean, "released": _scores(spike[kept], p[kept], voltage[kept], v[kept])}


def _scores(spike: np.ndarray, p: np.ndarray, voltage: np.ndarray, v: np.ndarray) -> dict[str, float]:
    return spike_scores(spike[:, START_MS:], p[:, START_MS:]) | voltage_scores(voltage[:, START_MS:], v[:, START_MS:])
