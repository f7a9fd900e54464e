"""A neuron as a file that runs without this package, checked against the neuron before it is used.

    >>> export(neuron, "neuron.onnx")                # a sequence, any batch and any number of steps
    >>> export(neuron, "neuron.pt2", stream=True)    # one step: the way to deploy a stream

Every program takes (x, s, m) and returns (y, s, m). x and y are laid out as for the neuron; a state begins with zeros.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elm_lib.interface.inputs import State
from elm_lib.interface.module import Recurrent

KINDS = {".pt2": "torch.export", ".onnx": "ONNX", ".ts": "TorchScript"}
SIZES = (3, 7), (2, 30)  # batch and steps: of the example that is traced, and of the check


class Program(nn.Module):
    """forward(x, s, m) -> y, s, m: tensors alone, of a sequence or of one step."""

    def __init__(self, neuron: Recurrent, stream: bool = False) -> None:
        super().__init__()
        self.neuron, self.stream = neuron, stream

    def forward(self, x: Tensor, s: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (s, m) = (self.neuron.step if self.stream else self.neuron)(x, State(s, m))
        return y, s, m

    def example(self, batch: int, steps: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Random x, s, m of these sizes."""
        n, like = self.neuron, self.neuron.proto_tau_m
        shape = (batch, steps) if n.batch_first else (steps, batch)
        generator = torch.Generator().manual_seed(seed)
        sizes = ((batch,) if self.stream else shape) + (n.input_size,), (batch, n.n_trace), (batch, n.n_memory)
        x, s, m = (torch.randn(*size, generator=generator).to(like) for size in sizes)
        return x, s, m


def export(neuron: Recurrent, path: str | Path, *, stream: bool = False, tolerance: float = 1e-5) -> Path:
    """Write the neuron to path, read it again and compare its numbers with the neuron's.

    path       ends in .pt2 (torch.export), .onnx (needs onnx, onnxscript and, to be checked, onnxruntime), or .ts
               (TorchScript)
    stream     one step, x (B, input_size), rather than a sequence
    tolerance  of the check, relative to the largest number of each output
    Returns  path
    Raises   ValueError for another ending, RuntimeError where numbers differ, ImportError where a package is missing
    """
    path = Path(path)
    if path.suffix not in KINDS:
        raise ValueError(f"{path}: choose an ending of {KINDS}")
    training = neuron.training
    program = Program(neuron, stream).eval()
    try:
        with torch.no_grad():
            _write(program, path)
            compare(program, path, tolerance)
    finally:
        neuron.train(training)
    return path


def _write(program: Program, path: Path) -> None:
    example = program.example(*SIZES[0])
    if path.suffix == ".ts":
        torch.jit.trace(program, example, check_trace=False).save(str(path))
        return
    batch, steps = torch.export.Dim("batch", min=1), torch.export.Dim("steps", min=1)
    axis = 0 if program.stream or program.neuron.batch_first else 1
    x_shape = {axis: batch} if program.stream else {axis: batch, 1 - axis: steps}
    shapes = (x_shape, {0: batch}, {0: batch})
    if path.suffix == ".onnx":
        torch.onnx.export(
            program,
            example,
            str(path),
            input_names=["x", "s", "m"],
            output_names=["y", "s_after", "m_after"],
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
        )
        return
    torch.export.save(torch.export.export(program, example, dynamic_shapes=shapes), path)


@torch.no_grad()
def compare(program: Program, path: Path, tolerance: float) -> None:
    """Run the file on sizes that it was not traced with. Raises RuntimeError where a number differs by more than the
    tolerance, relative to the largest."""
    example = program.example(*SIZES[1], seed=1)
    ours, theirs = program(*example), _run(path, example)
    for name, a, b in zip(("y", "s", "m"), ours, theirs, strict=True):
        error = float((a - b).abs().max() / a.abs().max().clamp(min=1e-30))
        if not error <= tolerance:
            raise RuntimeError(
                f"{path}: {name} differs from the neuron's by {error:.1e} (relative): do not use this file"
            )


def _run(path: Path, example: tuple[Tensor, ...]) -> Any:
    if path.suffix == ".ts":
        return torch.jit.load(str(path))(*example)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(*example)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {given.name: x.numpy() for given, x in zip(session.get_inputs(), example, strict=True)}
    return [torch.from_numpy(y) for y in session.run(None, feed)]
