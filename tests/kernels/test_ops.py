"""torch.compile with a neuron in one graph: the same numbers, gradients and errors."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from elm_lib import ELM, BranchELM, Spikes, State
from elm_lib.kernels import ops

MAKES = {
    "elm": lambda **k: ELM(100, 4, d_o=2, d_mlp=20, batch_first=True, **k),
    "linear branch": lambda **k: BranchELM(30, 5, d_tree=6, d_brch=7, l_mlp=0, **k),
    "deep": lambda **k: ELM(7, 5, l_mlp=2, activation="silu", tau_s=torch.linspace(2, 9, 7), **k),
}


def _results(run, neuron, x, state):
    leaves = [x, *state, *(p for p in neuron.parameters() if p.requires_grad)]
    y, (s, m) = run(x, State(*state))
    return [y, s, m, *torch.autograd.grad(y.sin().sum() + s.sum() + m.cos().sum(), leaves)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", MAKES)
def test_one_graph_gives_the_same_numbers_and_gradients(make, backend):
    torch._dynamo.reset()
    neuron = MAKES[make]().double()
    compiled = torch.compile(neuron, fullgraph=True, backend=backend)
    for batch, steps in ((3, 70), (2, 9)):
        shape = (batch, steps) if neuron.batch_first else (steps, batch)
        x = torch.randn(*shape, neuron.input_size, dtype=torch.float64, requires_grad=True)
        state = [torch.randn(batch, n, dtype=torch.float64, requires_grad=True) for n in (neuron.n_trace, neuron.d_m)]
        ours, expected = (_results(run, neuron, x, state) for run in (compiled, neuron))
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b)
    with torch.no_grad():
        y, after = compiled(x.detach())
        assert isinstance(after, State)
        torch.testing.assert_close(y, neuron(x)[0])


def test_inductor_gives_the_same():
    torch._dynamo.reset()
    neuron, x = MAKES["elm"](), torch.randn(3, 20, 100)
    y, _ = torch.compile(neuron, fullgraph=True)(x)
    torch.testing.assert_close(y, neuron(x)[0])


def test_what_is_not_dense_runs_beside_the_graph():
    torch._dynamo.reset()
    neuron = ELM(7, 5, batch_first=True)
    compiled, x = torch.compile(neuron, backend="eager"), torch.randn(3, 9, 7)
    for given, options in (
        (Spikes.from_dense((x > 1).float()), {}),
        (x, {"lengths": [9, 3, 2]}),
        (pack_sequence([x[0], x[1, :3]]), {}),
    ):
        y, expected = (run(given, **options)[0] for run in (compiled, neuron))
        for ours, theirs in zip(y if isinstance(y, tuple) else [y], expected if isinstance(y, tuple) else [expected]):
            assert ours is theirs is None or torch.equal(ours, theirs)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x)[0], neuron(x)[0])


@pytest.mark.parametrize("engine", ["torch", "cpu", "cuda"])
def test_the_operations_keep_their_contract(engine):
    """torch.library checks schema, fake tensors and the registered gradients."""
    n = [torch.randn(4, 2, 6), torch.randn(2, 3), torch.rand(3), torch.rand(3), torch.randn(6, 3)]
    p, m_0, kappa, gain, w_m, w_2, b_2 = (t.double().requires_grad_() for t in [*n, torch.randn(3, 6), torch.randn(3)])
    arguments = (p, m_0, kappa, gain, w_m, [w_2, b_2], "silu", 1.7, 0.7, engine)
    torch.library.opcheck(ops.recurrence_op, arguments, test_utils=("test_schema", "test_faketensor"))
    assert torch.autograd.gradcheck(
        lambda p, m_0, kappa, gain, w_m, w_2, b_2: ops.recurrence_op(
            p, m_0, kappa, gain, w_m, [w_2, b_2], "silu", 1.7, 0.7, engine
        )[0],
        (p, m_0, kappa, gain, w_m, w_2, b_2),
    )


@pytest.mark.parametrize("d_1", [2, 9])
def test_the_input_half_has_its_gradients(d_1):
    tensors = torch.randn(2, 5, 4), torch.randn(2, 4), torch.tensor(0.3), torch.rand(4), torch.randn(d_1, 4)
    x, s_0, rate, w_s, w_1, b_1 = (t.double().requires_grad_() for t in (*tensors, torch.randn(d_1)))
    assert torch.autograd.gradcheck(
        lambda x, s_0, rate, w_s, w_1, b_1: ops.input_half_op(x, s_0, rate, w_s, 1, w_1, b_1, "none"),
        (x, s_0, rate, w_s, w_1, b_1),
    )
    x, s_0, rate, w_s = (t.detach() for t in (x, s_0, rate, w_s))  # then the traces have no gradient
    assert torch.autograd.gradcheck(
        lambda w_1, b_1: ops.input_half_op(x, s_0, rate, w_s, 1, w_1, b_1, "none")[0], (w_1, b_1)
    )
