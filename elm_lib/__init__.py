"""elm_lib: the Expressive Leaky Memory neuron, its experiments and its data."""

__all__ = ["ELM", "BranchELM"]


def __getattr__(name: str):
    # lazily: a stage that only reads data need not import torch, nor depend on the neuron's code
    if name in __all__:
        from elm_lib import neuron

        return getattr(neuron, name)
    raise AttributeError(f"module 'elm_lib' has no attribute {name!r}")
