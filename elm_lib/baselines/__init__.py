"""Models that the paper compares the ELM neuron with: one module a model, its class named as the module in capitals."""

from elm_lib.baselines.lstm import LSTM

__all__ = ["LSTM"]
