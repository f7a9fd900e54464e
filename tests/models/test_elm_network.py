"""Networks of ELM neurons: against their equations in plain Python, separate neurons, and in nn.LSTM's place."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elm_lib import BranchELM, ELMNetwork, Spikes
from elm_lib.interface.inputs import State
from elm_lib.models.cost import count, parameters

SMALL = dict(d_m=2, d_tree=3, d_brch=4, d_o=2, batch_first=True, dtype=torch.float64)
TAU_B = {
    "none": None,
    "one": 4.0,
    "branch": torch.tensor([2.0, 5.0, 30.0]),
    "each": torch.linspace(1, 20, 12).view(4, 3),
}


def network(**options):
    made = ELMNetwork(5, 4, **(SMALL | options))
    with torch.no_grad():  # no zero hides what it multiplies
        for name, parameter in made.named_parameters():
            if name.endswith("b_r"):
                parameter.normal_()
    return made


def by_steps(model, x, state=None):
    outputs = []
    for t in range(x.shape[1]):
        y, state = model.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, 1), state


@settings(max_examples=60)
@given(
    layers=st.integers(1, 2),
    tau_b=st.sampled_from(list(TAU_B)),
    l_mlp=st.integers(0, 2),
    activation=st.sampled_from(["relu2", "relu", "silu"]),
    output=st.sampled_from(["relu", "spike", "identity"]),
    tau_r=st.sampled_from([None, 5.0]),
    recurrent=st.sampled_from([None, 0.0, 0.8]),
    read_out=st.sampled_from(["linear", "neurons"]),
    update=st.sampled_from(["improved", "original"]),
    w_s=st.sampled_from([None, 0.3]),
    engine=st.sampled_from(["reference", "torch", "auto"]),
    sparse=st.booleans(),
)
def test_a_sequence_is_its_steps(
    layers, tau_b, l_mlp, activation, output, tau_r, recurrent, read_out, update, w_s, engine, sparse
):
    model = network(
        num_layers=layers,
        tau_b=TAU_B[tau_b],
        l_mlp=l_mlp,
        activation=activation,
        output=output,
        tau_r=tau_r,
        recurrent=recurrent,
        read_out=read_out,
        memory_update=update,
        w_s=w_s,
        engine=engine,
        delta_t=2.0,
        learn_tau_m=True,
    )
    x = torch.randn(2, 7, 5, dtype=torch.float64)
    s, m = model.zero_state(x)
    state = State(torch.randn_like(s).requires_grad_(), torch.randn_like(m).requires_grad_())
    leaves = [*([] if sparse else [x.requires_grad_()]), *state, *model.parameters()]
    results = []
    for run in (lambda: model(Spikes.from_dense(x) if sparse else x, state), lambda: by_steps(model, x, state)):
        y, (s_t, m_t) = run()
        weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        loss = (y * weight).sum() + (s_t * torch.linspace(0, 1, s_t.shape[1])).sum() + 2 * m_t.sum()
        results.append([y, s_t, m_t, *torch.autograd.grad(loss, leaves, materialize_grads=True)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_the_equations_in_plain_python():
    """Neuron by neuron, synapse by synapse, from the equations at the top of `elm_lib.models.elm_layer`."""
    model = network(tau_b=4.0, delta_t=2.0, d_o=None, learn_tau_m=True)
    (layer,) = model.layers
    own = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    x = np.random.default_rng(0).normal(size=(6, 5))
    tau_m = layer.tau_m.detach().numpy()
    b, m, r, a = np.zeros((4, 3)), np.zeros((4, 2)), np.zeros(4), np.zeros(4)
    expected = []
    for x_t in x:
        sources, a_next = np.concatenate([x_t, a]), np.zeros(4)
        for n in range(4):
            for k in range(3):
                came = sum(own["proto_w_s"][n, k, j] * sources[own["connectome"][n, k, j]] for j in range(4))
                b[n, k] = math.exp(-2.0 / 4.0) * b[n, k] + came
            u = np.exp(-2.0 / tau_m[n]) * m[n]
            hidden = own["w_p.0"][n] @ np.concatenate([b[n], u]) + own["b_p.0"][n]
            z = own["w_p.1"][n] @ np.maximum(hidden, 0) ** 2 + own["b_p.1"][n]
            m[n] = u + (1 - np.exp(-5.0 * 2.0 / tau_m[n])) * 1.7159 * np.tanh(2 / 3 * z)
            y = own["w_r"][n] @ m[n]
            r[n] = math.exp(-2.0 / 5.0) * r[n] + (1 - math.exp(-2.0 / 5.0)) * y
            a_next[n] = max(0.0, y - r[n] + own["b_r"][n])
        a = a_next
        expected.append(a)
    y, state = model(torch.from_numpy(x)[None])
    assert (np.array(expected) > 0).any() and (np.array(expected) == 0).any()
    np.testing.assert_allclose(y[0].detach(), expected, rtol=1e-9, atol=1e-12)
    (last,) = model.states(state)
    for ours, theirs in zip(last, (b, r, a, m), strict=True):
        np.testing.assert_allclose(ours[0].detach(), theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ["reference", "torch", "auto"])
def test_without_connections_it_is_separate_neurons(engine):
    options = dict(lambda_=3.0, tau_m_range=(2.0, 40.0), tau_m_bounds=(0.0, 500.0), tau_m_init="linspace", tanh="tanh")
    options |= dict(memory_update="original", activation="silu", w_s=0.4, delta_t=2.0)
    layer = network(recurrent=0.0, tau_b=6.0, tau_r=None, output="identity", d_o=None, engine=engine, **options)
    (inner,) = layer.layers
    x = torch.randn(3, 9, 5, dtype=torch.float64)
    y, state = layer(x)
    for n in range(4):
        neuron = BranchELM(
            5, 2, d_o=1, d_tree=3, d_brch=4, d_mlp=4, routing="random", tau_s=6.0, batch_first=True, **options
        ).double()
        with torch.no_grad():
            neuron.routing_index.copy_(inner.connectome[n].flatten())
            for linear, weight, bias in zip(neuron.mlp, inner.w_p, inner.b_p, strict=True):
                linear.weight.copy_(weight[n])
                linear.bias.copy_(bias[n])
            neuron.w_y.weight.copy_(inner.w_r[n : n + 1])
            neuron.w_y.bias.copy_(inner.b_r[n : n + 1])
        alone, (s, m) = neuron(x)
        torch.testing.assert_close(y[:, :, n], alone[..., 0], rtol=1e-6, atol=1e-8)
        parts = layer.states(state)[0]
        torch.testing.assert_close(parts.b[:, n], s, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(parts.m[:, n], m, rtol=1e-6, atol=1e-8)


VARIANTS = {
    "plain": {},
    "deep": {"num_layers": 2, "tau_b": 3.0},
    "bidirectional": {"num_layers": 2, "bidirectional": True, "tau_b": TAU_B["branch"]},
    "neurons read out": {"read_out": "neurons", "output": "spike"},
    "lstm": None,
}


def variant(name):
    if VARIANTS[name] is None:
        return nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True, dtype=torch.float64)
    return network(**VARIANTS[name])


@pytest.mark.parametrize("name", VARIANTS)
def test_padded_and_packed_batches_are_separate_runs(name):
    model, lengths = variant(name), [4, 9, 1, 6]
    x = torch.randn(4, 9, 5, dtype=torch.float64)
    y, state = model(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    padded, _ = pad_packed_sequence(y, batch_first=True)
    for b, length in enumerate(lengths):
        alone, last = model(x[b : b + 1, :length])
        torch.testing.assert_close(padded[b, :length], alone[0], rtol=1e-9, atol=1e-9)
        axis = 1 if name == "lstm" else 0
        for ours, theirs in zip(state, last, strict=True):
            torch.testing.assert_close(ours.select(axis, b), theirs.select(axis, 0), rtol=1e-9, atol=1e-9)
    if name != "lstm":
        holes = x.clone()
        for b, length in enumerate(lengths):
            holes[b, length:] = math.nan
        again, after = model(holes, lengths=lengths)
        assert torch.equal(again, padded) and all(map(torch.equal, after, state))
        torch.testing.assert_close(model.last(again, lengths), model.last(y), rtol=0, atol=0)


def test_a_bidirectional_layer_is_two_layers():
    both = network(bidirectional=True, d_o=None)
    x = torch.randn(2, 6, 5, dtype=torch.float64)
    y, _ = both(x)
    for way, flip in ((0, lambda z: z), (1, lambda z: z.flip(1))):
        one = network(d_o=None)
        one.layers[0].load_state_dict(both.layers[way].state_dict())
        torch.testing.assert_close(y[:, :, 4 * way : 4 * way + 4], flip(one(flip(x))[0]), rtol=1e-9, atol=1e-12)
    for call in (lambda: both.step(x[:, 0]), both.streamer):
        with pytest.raises(ValueError, match="bidirectional=False"):
            call()


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("name", ["plain", "deep", "neurons read out"])
@pytest.mark.parametrize("tau_b", TAU_B)
def test_a_stream_is_the_steps(name, batch, tau_b):
    model = network(**(VARIANTS[name] | {"tau_b": TAU_B[tau_b]}))
    stream, state = model.streamer(batch=batch), None
    for _ in range(5):
        x = torch.randn(*([] if batch is None else [batch]), 5, dtype=torch.float64)
        y, state = model.step(x, state)
        torch.testing.assert_close(stream(x), y, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(stream.state, state, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="this stream takes"):
        stream(torch.zeros(2, 5, dtype=torch.float64))


def test_variational_dropout_holds_one_mask_a_sample():
    model = network(input_dropout=0.5, recurrent_dropout=0.5, memory_dropout=0.3, num_layers=2, dropout=0.2)
    x = torch.randn(2, 8, 5, dtype=torch.float64)
    draws = [part for part in model.modules() if hasattr(part, "reseed")]
    assert len(draws) == 6  # input, between layers, and of each layer what is sent and the memory

    def run(seed):
        for k, part in enumerate(draws):
            part.reseed(seed, k)
        return model(x)[0]

    assert torch.equal(run(1), run(1)) and not torch.equal(run(1), run(2))
    model.eval()
    assert torch.equal(run(1), by_steps(model, x)[0]) or torch.allclose(run(1), by_steps(model, x)[0])
    # a masked channel is silent at every step: the output does not depend on it
    alone = network(input_dropout=0.5)
    alone.input_masks.reseed(3)
    mask = alone.input_masks.draw((2, 5), x)
    alone.input_masks.reseed(3)
    grad = torch.autograd.grad(alone(x.requires_grad_())[0].square().sum(), x)[0]
    assert (grad[(mask == 0).unsqueeze(1).expand_as(x)] == 0).all() and (mask == 0).any()


def test_it_saves_loads_and_copies_with_its_wiring():
    model = network(num_layers=2, read_out="neurons")
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    other = network(num_layers=2, read_out="neurons")
    assert not torch.equal(other(x)[0], model(x)[0])
    other.load_state_dict(model.state_dict())
    for same in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(same(x)[0], model(x)[0])
    with pytest.raises(RuntimeError, match="tau_r is 5.0 in the file, 7.0 in the neuron"):
        network(num_layers=2, read_out="neurons", tau_r=7.0).load_state_dict(model.state_dict())
    fixed = [network(routing_seed=4).layers[0].connectome for _ in range(2)]
    assert torch.equal(*fixed)


def test_the_connectome_is_random_with_the_share_asked_for():
    layer = ELMNetwork(30, 20, d_m=2, d_tree=10, d_brch=50, recurrent=0.25).layers[0]
    own = (layer.connectome >= 30).double()
    assert 0 <= int(layer.connectome.min()) and int(layer.connectome.max()) < 50
    assert abs(float(own.mean()) - 0.25) < 0.03
    reader = ELMNetwork(30, 20, d_m=2, d_o=3, read_out="neurons").layers[-1]
    assert reader.connectome.shape == (3, 5, 4) and not reader.is_recurrent  # 5: of 20's divisors the last up to 8
    assert all(torch.equal(row.flatten().sort()[0], torch.arange(20)) for row in reader.connectome)


def test_parameters_and_flops_are_those_of_the_equations():
    """Of a neuron: d_tree d_brch synapses, d_mlp (d_tree + d_m + 1) + d_m (d_mlp + 1), and d_m + 1 of its read-out."""
    model = ELMNetwork(700, 57, d_m=9, d_brch=2, d_o=20, read_out="neurons")
    neuron = lambda d_tree, d_brch: d_tree * d_brch + 18 * (d_tree + 10) + 9 * 19 + 10  # noqa: E731
    assert parameters(model) == 57 * neuron(36, 2) + 20 * neuron(19, 3)
    one, two = (count(ELMNetwork(700, n, d_m=9, d_brch=2), 10) for n in (10, 20))
    assert two == 2 * one > 0


@torch.no_grad()
def test_it_stays_in_bounds_where_nothing_comes():
    y, state = ELMNetwork(32, 64, batch_first=True)(torch.zeros(1, 1000, 32))
    assert float(state.m.abs().max()) < 2 and bool(y.isfinite().all())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"hidden_size": 4}, TypeError, "num_neurons"),
        ({"proj_size": 4}, TypeError, "d_o"),
        ({"recurrent": 1.0}, ValueError, "recurrent=1.0: a probability"),
        ({"read_out": "neurons", "d_o": None}, ValueError, "needs d_o"),
        ({"tau_b": torch.ones(7)}, ValueError, "tau_b of shape"),
        ({"tau_r": 0.0}, ValueError, "tau_r=0.0"),
        ({"output": "tanh"}, ValueError, "output='tanh'"),
        ({"engine": "cuda"}, ValueError, "engine"),
        ({"dropout": 1.0}, ValueError, "dropout=1.0"),
    ],
)
def test_what_it_refuses_and_with_which_words(options, error, words):
    with pytest.raises(error, match=words):
        network(**options)


def test_it_takes_lstms_arguments_by_place_and_its_shapes():
    ours, lstm = ELMNetwork(5, 4, 2), nn.LSTM(5, 4, 2)
    for shape in ((7, 3, 5), (7, 5)):
        x = torch.randn(shape)
        assert ours(x)[0].shape == lstm(x)[0].shape
    assert ours.hidden_size == lstm.hidden_size and ours.num_layers == lstm.num_layers
    meta = ELMNetwork(5, 4, d_o=2, device="meta", batch_first=True)
    assert meta(torch.zeros(3, 7, 5, device="meta"))[0].shape == (3, 7, 2)
    ready = nn.utils.skip_init(ELMNetwork, 5, 4)
    ready.reset_parameters()
    assert all(bool(p.isfinite().all()) for p in ready.parameters())


def test_torch_func_compile_and_autocast():
    model = ELMNetwork(5, 4, d_m=2, d_tree=3, d_brch=4, d_o=2, batch_first=True)
    x, named = torch.randn(2, 6, 5), dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,))[0].square().sum()

    expected = torch.autograd.grad(model(x)[0].square().sum(), [named["layers.0.proto_w_s"]])[0]
    grads = torch.func.grad(loss)({k: v.detach() for k, v in named.items()}, x)
    torch.testing.assert_close(grads["layers.0.proto_w_s"], expected, rtol=1e-4, atol=1e-5)
    each = torch.func.vmap(lambda one: model(one)[0])(x.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(each, model(x)[0], rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = model(x)
        y, state = model(x, state)
    assert bool(y.isfinite().all()) and state.m.dtype == torch.float32
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x)[0], model(x)[0])
