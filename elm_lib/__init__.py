"""The Expressive Leaky Memory neuron, its experiments and its data.

>>> from elm_lib import ELM, BranchELM, ELMNetwork, Spikes, fit, load_released
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "ELM": "elm_lib.neuron",
    "BranchELM": "elm_lib.neuron",
    "ELMNetwork": "elm_lib.models.elm_network",
    "Spikes": "elm_lib.kernels.spikes",
    "State": "elm_lib.interface.inputs",
    "export": "elm_lib.interface.export",
    "fit": "elm_lib.fitting.fit",
    "load_fit": "elm_lib.fitting.fitted",
    "load_released": "elm_lib.models.released",
}
__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str):
    # Imported at first use: whoever only reads data does not wait for torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'elm_lib' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
