"""Models that the paper compares the ELM neuron with."""

from elm_lib.baselines.lstm import LSTM

__all__ = ["LSTM"]
