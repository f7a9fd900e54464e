"""A neuron as a file: torch.export, ONNX and TorchScript, of a sequence and of one step, against the neuron itself."""

import io
import subprocess
import sys

import pytest
import torch
from torch.export import Dim

from elm_lib import ELM, BranchELM, ELMNetwork, State, export
from elm_lib.interface.export import Program, compare

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.compile is ignored:UserWarning",  # inside torch's scan
    "ignore:The .grad attribute:UserWarning",
    "ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning",  # torch's ONNX exporter
    "ignore:.*axis name.*:UserWarning",
)
WITHOUT_ONNX = "no ONNX: pip install 'elm-lib[onnx]'"
MAKES = {
    "elm": lambda **k: ELM(6, 5, d_o=2, batch_first=True, **k),
    "memory": lambda **k: ELM(6, 5, l_mlp=2, memory_update="improved", tanh="scaled", **k),
    "branch": lambda **k: BranchELM(
        6,
        5,
        d_tree=3,
        d_brch=4,
        routing="random",
        tau_s=torch.linspace(2, 9, 12),
        branch_activation="sigmoid",
        activation="silu",
        **k,
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("ending", [".pt2", ".ts"])
def test_a_file_gives_the_neurons_numbers_on_other_sizes(ending, make, stream, tmp_path):
    neuron = MAKES[make]().double().train()
    with torch.no_grad():
        for parameter in neuron.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))  # as one that was fitted
    path = export(neuron, tmp_path / f"neuron{ending}", stream=stream, tolerance=1e-12)
    assert path.exists() and neuron.training
    with torch.no_grad():
        neuron.mlp[0].bias += 0.1
    with pytest.raises(RuntimeError, match="y differs from the neuron's"):
        compare(Program(neuron, stream), path, 1e-6)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ending", [".pt2", ".onnx"])
def test_a_network_as_a_file(ending, stream, tmp_path):
    if ending == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason=WITHOUT_ONNX)
    network = ELMNetwork(6, 4, 2, d_m=2, d_tree=3, d_brch=4, d_o=2, read_out="neurons", tau_b=3.0, batch_first=True)
    export(network, tmp_path / f"network{ending}", stream=stream)
    with pytest.raises(TypeError, match="no TorchScript"):
        export(network, tmp_path / "network.ts")


@pytest.mark.parametrize("stream", [False, True])
def test_onnx_gives_the_neurons_numbers_on_other_sizes(stream, tmp_path):
    pytest.importorskip("onnx", reason=WITHOUT_ONNX)
    pytest.importorskip("onnxscript", reason=WITHOUT_ONNX)
    pytest.importorskip("onnxruntime", reason=WITHOUT_ONNX)
    neuron = MAKES["elm" if stream else "branch"]().double()
    export(neuron, tmp_path / "neuron.onnx", stream=stream, tolerance=1e-6)
    if not stream:
        export(neuron.float(), tmp_path / "neuron.onnx", tolerance=1e-5)  # single precision, 30 steps


def test_an_ending_without_a_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"neuron\.bin: choose an ending"):
        export(ELM(3), tmp_path / "neuron.bin")


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_takes_a_neuron_as_it_takes_any_module(strict):
    neuron, x, longer = MAKES["elm"](), torch.randn(3, 7, 6), torch.randn(2, 40, 6)
    program = torch.export.export(
        neuron, (x,), dynamic_shapes={"x": {0: Dim("batch", min=1), 1: Dim("steps", min=1)}}, strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    y, state = torch.export.load(file).module()(longer)
    assert isinstance(state, State)
    for ours, expected in zip([y, *state], [neuron(longer)[0], *neuron(longer)[1]], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="no lengths"):
        torch.export.export(neuron, (x,), {"lengths": [7, 7, 7]})


def test_a_file_runs_where_this_package_is_not(tmp_path):
    neuron = MAKES["elm"]()
    export(neuron, tmp_path / "neuron.ts")
    x, s, m = Program(neuron).example(2, 9)
    torch.save((x, s, m), tmp_path / "example.pt")
    code = (
        "import sys, torch; sys.modules['elm_lib'] = sys.modules['numba'] = None\n"
        "y, s, m = torch.jit.load('neuron.ts')(*torch.load('example.pt')); torch.save(y.detach(), 'y.pt')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    torch.testing.assert_close(torch.load(tmp_path / "y.pt"), neuron(x, State(s, m))[0].detach(), rtol=1e-5, atol=1e-5)
