"""The temporal convolutional network that NeuronIO was first fitted with (Beniaguev et al. 2021).

doi:10.1016/j.neuron.2021.07.002.

Seven causal convolutions over time of 128 channels, each followed by a ReLU and batch normalisation, and a linear
read-out. The paper of the ELM draws its smallest TCN at 9.2 million parameters. With a receptive field of 153 ms, a
first kernel of 45 ms and six of 19 ms give 9.23 million; the kernels are deduced from these two numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elm_lib import neuron_init
from elm_lib.interface import inputs
from elm_lib.kernels.spikes import Spikes

REVISION = 1  # raise it by hand when the same settings give other results; docs/identity.md


class TCN(nn.Module):
    """Causal convolutions over time; `output, state = tcn(x)`. It has no state: the state is None.

    width          channels of every layer
    depth          layers
    kernel_first, kernel   steps that the first layer and each other layer look back, the present one included
    Raises ValueError for a size below 1.
    """

    def __init__(
        self,
        input_size: int,
        width: int = 128,
        d_o: int = 2,
        *,
        depth: int = 7,
        kernel_first: int = 45,
        kernel: int = 19,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        neuron_init.check_whole(1, input_size=input_size, width=width, d_o=d_o, depth=depth)
        neuron_init.check_whole(1, kernel_first=kernel_first, kernel=kernel)
        self.input_size, self.width, self.d_o, self.batch_first = input_size, width, d_o, batch_first
        kernels = [kernel_first, *[kernel] * (depth - 1)]
        widths = [input_size, *[width] * depth]
        self.layers = nn.ModuleList(nn.Conv1d(i, o, k) for i, o, k in zip(widths, widths[1:], kernels))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in kernels)
        self.w_y = nn.Linear(width, d_o)

    @property
    def receptive_field(self) -> int:
        """Steps of input that an output depends on."""
        return 1 + sum(_reach(layer) for layer in self.layers)

    def forward(self, x: Tensor | Spikes, state: None = None) -> tuple[Tensor, None]:
        """x (B, T, input_size) with batch_first, or `Spikes` -> (B, T, d_o), None.

        What comes before the first step is taken as silence. Raises ValueError for a state or a wrong shape.
        """
        if state is not None:
            raise ValueError("a TCN has no state: give the input that its receptive field needs")
        if isinstance(x, Spikes):
            x = x.check(self.w_y.weight.dtype).dense()
        elif not self.batch_first:
            x = x.transpose(0, 1)
        inputs.check_sequence(x.shape, self.input_size)
        z = x.transpose(1, 2)  # (B, C, T)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            z = norm(torch.relu(layer(F.pad(z, (_reach(layer), 0)))))
        y = self.w_y(z.transpose(1, 2))
        return (y if self.batch_first else y.transpose(0, 1)), None


def _reach(layer: nn.Module) -> int:
    """Steps before the present one that a layer reads."""
    assert isinstance(layer, nn.Conv1d)
    return layer.kernel_size[0] - 1
