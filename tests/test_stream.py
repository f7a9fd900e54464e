"""A stream one step at a time against `step`, from any state, for every kind of neuron."""

import pytest
import torch

from elm_lib import ELM, BranchELM

MAKES = {
    "elm": lambda: ELM(7, 5, d_o=2),
    "memory": lambda: ELM(7, 5, l_mlp=0, memory_update="improved", tau_s=torch.linspace(2, 9, 7)),
    "deep": lambda: ELM(7, 5, d_o=2, l_mlp=2, activation="silu", tanh="scaled"),
    "branch": lambda: BranchELM(7, 5, d_o=2, d_tree=3, d_brch=4),
    "synapses": lambda: BranchELM(
        7, 5, d_o=2, d_tree=3, d_brch=4, routing="random", tau_s=torch.linspace(2, 9, 12), tanh="scaled"
    ),
    "sigmoid": lambda: BranchELM(7, 5, d_tree=3, d_brch=4, branch_activation="sigmoid"),
    "synapses, relu": lambda: BranchELM(
        7, 5, d_o=2, d_tree=3, d_brch=4, branch_activation="relu", tau_s=torch.linspace(2, 9, 12)
    ),
}


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("make", MAKES)
def test_a_streamer_gives_the_outputs_of_step(make, batch):
    neuron = MAKES[make]().double()
    shape = () if batch is None else (batch,)
    x = torch.randn(40, *shape, 7, dtype=torch.float64)
    streamer, state, outputs = neuron.streamer(batch=batch), None, []
    for k, x_t in enumerate(x):
        y, state = neuron.step(x_t, state)
        outputs.append(streamer(x_t))
        torch.testing.assert_close(outputs[-1], y.detach())
        if k == 20:
            streamer = neuron.streamer(streamer.state)  # another goes on
    for ours, expected in zip(streamer.state, state, strict=True):
        torch.testing.assert_close(ours, expected.detach())
    first = outputs[0].clone()
    streamer.state = neuron._zeros(*shape)
    assert torch.equal(streamer(x[0]), first) and torch.equal(outputs[0], first)  # an output is not written again


def test_a_streamer_keeps_its_own_parameters_and_state():
    neuron, x = MAKES["elm"](), torch.randn(7)
    streamer, other = neuron.streamer(), neuron.streamer()
    y, before = streamer(x), streamer.state
    with torch.no_grad():
        for parameter in neuron.parameters():
            parameter.add_(1.0)
    neuron.tau_s.add_(1.0)
    assert torch.equal(other(x), y)
    streamer(x)
    assert torch.equal(before.m, other.state.m) and not torch.equal(streamer.state.m, before.m)
    before.m.zero_()
    assert other.state.m.any()


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(1), r"shape \(1,\): this stream takes \(7,\)"),
        (torch.zeros(1, 7), r"takes \(7,\)"),
        (torch.zeros(7).double(), r"x\.to\(torch\.float32\)"),
        ([0.0] * 7, "a list: give torch.tensor"),
    ],
)
def test_a_streamer_refuses_what_step_refuses(x, words):
    neuron = MAKES["elm"]()
    streamer = neuron.streamer()
    with pytest.raises((TypeError, ValueError), match=words):
        streamer(x)
    assert not streamer.state.m.any()
    with pytest.raises(TypeError, match=r"\(None, None\)"):
        neuron.streamer((None, None))
    with pytest.raises(ValueError, match="state has shapes"):
        neuron.streamer((torch.zeros(3, 6), torch.zeros(3, 5)))
    neuron.mlp[0].register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="forward hook"):
        neuron.streamer()
