"""Scores of a spike and voltage prediction, as published for NeuronIO (Tables S8 to S10, Figure 4c)."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

FALSE_POSITIVE_RATES = (0.0025, 0.01)


def spike_scores(target: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Area under the full ROC, and the true-positive rate at the ROC point nearest to each false-positive rate.

    target  0/1, any shape;  score  same shape, higher is more likely a spike.
    Without a single spike (or without silence) no ROC exists: every score is NaN. NaN or inf predictions give NaN.
    """
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
