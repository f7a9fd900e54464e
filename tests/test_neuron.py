"""The neuron against the authors' released code, against its equations step by step, and in place of nn.LSTM."""

import copy
import itertools
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from elm_lib import ELM, BranchELM, load_released, neuron_init
from elm_lib.interface.settings import with_settings
from elm_lib.kernels.spikes import Spikes, thinned
from elm_lib.models.cost import count, parameters
from elm_lib.models.lstm import LSTM
from elm_lib.models.released import translate
from elm_lib.paper.neuronio import published_neuronio
from elm_lib.support.errors import DataError

MODELS = ("num_memory_1", "num_memory_5", "num_memory_20", "num_memory_50", "best_elm_neuron")


@pytest.mark.parametrize("name", MODELS)
def test_released_weights_give_the_released_outputs(shared, name):
    golden = np.load(shared / "official" / "neuronio_golden.npz")
    x = torch.zeros(tuple(golden["input_shape"]))
    x[tuple(torch.from_numpy(golden["input_indices"].astype(np.int64)).T)] = torch.from_numpy(
        golden["input_values"]
    ).float()
    model = load_released(shared / "official" / name)
    with torch.no_grad():
        y, _ = model(x)
        interleaved, _ = load_released(shared / "official" / name, channels="interleaved")(
            x.view(*x.shape[:2], 2, 639).transpose(2, 3).flatten(2)
        )
    ours = torch.stack([torch.sigmoid(y[..., 0]), 10 * y[..., 1]], -1).numpy()
    scale = np.abs(golden[f"{name}.output"]).max((0, 1))
    assert np.max(np.abs(ours - golden[f"{name}.output"]) / scale) < 1e-5
    assert torch.allclose(interleaved, y, atol=1e-5)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("kind", ["plain", "branch"])
@pytest.mark.parametrize("engine", ["reference", "torch", "cpu"])
def test_gradients_equal_those_of_the_released_code(version, kind, engine):
    """float64 gradients of sum(y * linspace(-1, 1)). v1 has the original memory update, v2 the improved one."""
    with np.load(Path(__file__).parent / "data" / "gradient_golden.npz") as file:
        prefix = f"{version}.{kind}."
        golden = {key.removeprefix(prefix): torch.from_numpy(file[key]) for key in file if key.startswith(prefix)}
    options = dict(
        d_m=5,
        d_o=3,
        lambda_=5.0,
        delta_t=2.0,
        tau_m_range=(1, 50),
        tau_m_bounds=(1, 50),
        tanh="scaled",
        engine=engine,
        learn_w_s=True,
        batch_first=True,
        memory_update="original" if version == "v1" else "improved",
    )
    model = (ELM(12, **options) if kind == "plain" else BranchELM(12, d_tree=4, d_brch=5, **options)).double()
    state = translate({k[6:]: v for k, v in golden.items() if k.startswith("param.")})
    missing, unexpected = model.load_state_dict(
        with_settings({k: v for k, v in state.items() if v.numel()}, model), strict=False
    )
    assert missing == ["tau_s"] and not unexpected
    x = golden["x"].requires_grad_()
    y, _ = model(x)
    (y * torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
    torch.testing.assert_close(y, golden["y"], rtol=0, atol=1e-9)
    torch.testing.assert_close(x.grad, golden["grad.x"], rtol=0, atol=1e-9)
    grads = translate({k[5:]: v for k, v in golden.items() if k.startswith("grad.") and k != "grad.x"})
    named = dict(model.named_parameters())
    assert set(grads) == set(named)
    for key, value in grads.items():
        torch.testing.assert_close(named[key].grad, value, rtol=0, atol=1e-9, msg=lambda m, k=key: f"{k}: {m}")


def _neuron(kind, tau, l_mlp, update, activation, d_m=3, phi="none"):
    options = dict(
        d_o=2, l_mlp=l_mlp, memory_update=update, activation=activation, batch_first=True, tau_m_range=(1, 40)
    )
    vector = lambda n: torch.linspace(2, 9, n)  # noqa: E731
    if kind == "plain":
        model = ELM(7, d_m, tau_s=5.0 if tau == "shared" else vector(7), **options)
    else:
        model = BranchELM(
            7,
            d_m,
            d_tree=3,
            d_brch=4,
            routing=kind,
            tau_s={"shared": 5.0, "branch": vector(3), "synapse": vector(12)}[tau],
            branch_activation=phi,
            **options,
        )
    for p in model.parameters():
        p.requires_grad_(True)
    return model.double()


def _steps(model, x, state=None):
    outputs = []
    for t in range(x.shape[1]):
        y, state = model.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, 1), state


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["plain", "neighbourhood", "random", "covering"]),
    tau=st.sampled_from(["shared", "branch", "synapse"]),
    l_mlp=st.integers(0, 2),
    update=st.sampled_from(["original", "improved"]),
    activation=st.sampled_from(["relu", "silu", "relu2"]),
    batch=st.integers(1, 3),
    d_m=st.integers(1, 4),
    steps=st.sampled_from([1, 2, 63, 64, 65, 130]),
    engine=st.sampled_from(["reference", "torch", "auto"]),
    phi=st.sampled_from(["none", "relu", "sigmoid"]),
)
def test_sequence_equals_the_equations_step_by_step(
    kind, tau, l_mlp, update, activation, batch, d_m, steps, engine, phi
):
    model = _neuron(kind, tau, l_mlp, update, activation, d_m, phi)
    model.engine = engine
    x = torch.randn(batch, steps, 7, dtype=torch.float64, requires_grad=True)
    s, m = model.zero_state(x[:, 0].detach())
    state = (torch.randn_like(s).requires_grad_(), torch.randn_like(m).requires_grad_())
    weight = torch.randn(batch, steps, 2, dtype=torch.float64)
    results = []
    for run in (model, lambda x, state: _steps(model, x, state)):
        y, (s_t, m_t) = run(x, state)
        leaves = [x, *state, *model.parameters()]
        results.append([y, s_t, m_t, *torch.autograd.grad((y * weight).sum() + s_t.sum() + 2 * m_t.sum(), leaves)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "tau"), [*itertools.product(["plain", "neighbourhood"], ["shared", "branch", "synapse"]), ("lstm", None)]
)
def test_sparse_input_equals_dense_input(kind, tau):
    model = LSTM(7, 3, 2, batch_first=True).double() if kind == "lstm" else _neuron(kind, tau, 1, "original", "relu")
    dense = (torch.rand(2, 90, 7, dtype=torch.float64) < 0.2) * torch.tensor([1.0, -1, 1, -1, 1, -1, 1]).double()
    dense[0, 10:40] = 0  # rows without a spike
    b, t, c = dense.nonzero(as_tuple=True)
    row_ptr = torch.zeros(181, dtype=torch.int64)
    row_ptr[1:] = torch.bincount(b * 90 + t, minlength=180).cumsum(0)
    sparse = Spikes(row_ptr, c, dense[b, t, c], (2, 90, 7))
    assert torch.equal(sparse.dense(), dense)
    results = []
    for x in (sparse, dense):
        y, (s, m) = model(x)
        results.append(
            [
                y,
                s,
                m,
                *torch.autograd.grad(y.sin().sum() + s.sin().sum(), [p for p in model.parameters() if p.requires_grad]),
            ]
        )
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


def test_float32_at_paper_size_agrees_with_the_equations():
    model = BranchELM(1278, 20, d_o=2, batch_first=True)
    x = (torch.rand(2, 500, 1278) < 0.01).float()
    with torch.no_grad():
        y, _ = model(x)
        expected, _ = _steps(model, x)
    assert (y - expected).abs().max() <= 1e-6 * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize(
    "kind,tau", [("plain", "shared"), ("neighbourhood", "shared"), ("neighbourhood", "branch"), ("random", "synapse")]
)
def test_stream_in_pieces_equals_one_go(kind, tau):
    model = _neuron(kind, tau, 1, "original", "relu")
    x = torch.randn(2, 150, 7, dtype=torch.float64)
    whole, (s, m) = model(x)
    state, parts = None, []
    for piece in x.split([1, 70, 64, 15], 1):
        y, state = model(piece, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state[0], s)
    torch.testing.assert_close(state[1], m)


def test_stands_where_nn_lstm_stood():
    x = torch.randn(11, 4, 6)
    for make in (
        lambda **k: nn.LSTM(6, 5, **k),
        lambda **k: ELM(6, 5, **k),
        lambda **k: BranchELM(6, 5, d_tree=3, d_brch=2, **k),
    ):
        first, second = make(), make(batch_first=True)
        second.load_state_dict(first.state_dict())
        out, state = first(x)
        assert out.shape == (11, 4, 5)
        swapped, _ = second(x.transpose(0, 1))
        torch.testing.assert_close(swapped.transpose(0, 1), out)
        single, _ = first(x[:, 2])
        torch.testing.assert_close(single, out[:, 2])
        first(x, state)


@pytest.mark.parametrize(
    "model",
    [
        ELM(6, 4, d_o=2, batch_first=True),
        BranchELM(6, 4, d_o=2, d_tree=3, d_brch=4, routing="random", routing_seed=7, batch_first=True),
    ],
)
def test_copies_pickles_and_restores(model):
    x = torch.randn(2, 9, 6)
    expected = model(x)[0].detach()
    other = (
        BranchELM(6, 4, d_o=2, d_tree=3, d_brch=4, routing="random", routing_seed=8, batch_first=True)
        if isinstance(model, BranchELM)
        else ELM(6, 4, d_o=2, batch_first=True)
    )
    other.load_state_dict(model.state_dict())  # the drawn routing travels with the weights
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other):
        with torch.no_grad():
            assert torch.equal(twin(x)[0], expected)


def test_nan_in_the_input_reaches_the_output():
    model = BranchELM(8, 3, d_o=2, d_tree=2, d_brch=4, batch_first=True)
    x = torch.zeros(1, 10, 8)
    x[0, 4, 0] = torch.nan
    for dense in (x, x.expand(1, 10, 8).clone().requires_grad_()):
        y = model(dense)[0]
        assert torch.isnan(y[:, 4:]).all() and torch.isfinite(y[:, :4]).all()


def _wide(engine="auto"):
    """The traces are projected before they are filtered, and a thin input is gathered."""
    torch.manual_seed(0)
    return ELM(100, 4, d_o=2, d_mlp=20, batch_first=True, engine=engine).double()


def test_thin_dense_input_is_gathered_and_gives_the_same():
    model, x = _wide(), torch.zeros(3, 70, 100, dtype=torch.float64)
    x[torch.rand(x.shape) < 0.03] = 2.0
    x[1, 5, 98], x[2, 69, 99] = -1.0, 0.5
    assert isinstance(thinned(x), Spikes) and torch.equal(thinned(x).dense(), x)
    assert thinned(torch.randn(3, 70, 100)).shape == (3, 70, 100)
    learned = [p for p in model.parameters() if p.requires_grad]
    gathered, kept = (
        [*model(given)[1], *torch.autograd.grad(model(given)[0].sin().sum(), learned)]
        for given in (x, x.clone().requires_grad_())
    )
    for ours, expected in zip(gathered, kept, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_second_derivatives_are_right_or_refused():
    x = torch.randn(2, 70, 100, dtype=torch.float64, requires_grad=True)

    def penalty(model, run):
        (slope,) = torch.autograd.grad(run(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.pow(2).sum(), model.mlp[0].weight)[0]

    model = _wide("reference")
    torch.testing.assert_close(penalty(model, lambda x: model(x)[0]), penalty(model, lambda x: _steps(model, x)[0]))
    model = _wide("auto")
    with pytest.raises(RuntimeError, match="engine='reference'"):
        penalty(model, lambda x: model(x)[0])


def test_torch_func_compile_and_data_parallel_give_the_same(tmp_path):
    model, x = _wide(), torch.randn(2, 70, 100, dtype=torch.float64)
    parameters = dict(model.named_parameters())
    model(x)[0].sum().backward()
    expected = {name: p.grad for name, p in parameters.items() if p.grad is not None}

    ours = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,))[0].sum())(parameters)
    for name, grad in expected.items():
        torch.testing.assert_close(ours[name], grad)

    compiled = torch.compile(_wide(), backend="eager")
    compiled(x)[0].sum().backward()
    assert all(
        torch.equal(p.grad, expected[name.split(".", 1)[1]])
        for name, p in compiled.named_parameters()
        if p.grad is not None
    )

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(_wide())
        parallel(x)[0].sum().backward()
        assert all(
            torch.equal(p.grad, expected[name.split(".", 1)[1]])
            for name, p in parallel.named_parameters()
            if p.grad is not None
        )
    finally:
        torch.distributed.destroy_process_group()


def test_spikes_under_autocast_and_of_no_sample():
    model = BranchELM(8, 3, d_o=2, d_tree=30, d_brch=4, d_mlp=4, batch_first=True)
    x = torch.zeros(2, 9, 8).index_fill(1, torch.tensor([3]), 1.0)
    b, t, c = x.nonzero(as_tuple=True)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(b * 9 + t, minlength=18).cumsum(0)])
    spikes = Spikes(row_ptr, c, x[b, t, c], (2, 9, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(model(spikes)[0].float(), model(x)[0].float(), rtol=0.05, atol=0.05)
    empty = Spikes(torch.zeros(1, dtype=torch.int64), c[:0], x.new_zeros(0), (0, 9, 8))
    assert model(empty)[0].shape == (0, 9, 2)
    for wrong in (
        spikes._replace(shape=(-2, -9, 8)),
        spikes._replace(shape=(2, 9, 8, 1)),
        spikes._replace(value=spikes.value + 0j),
    ):
        with pytest.raises(ValueError, match="Spikes"):
            model(wrong)
    with pytest.raises(ValueError, match="steps 3 up to 10 of 9"):
        spikes.window(3, 10)


def test_tau_m_stays_inside_its_bounds_and_starts_where_asked():
    model = ELM(3, 50, tau_m_range=(1, 100), tau_m_bounds=(0, 500))
    torch.testing.assert_close(model.tau_m, torch.linspace(1, 100, 50), rtol=1e-4, atol=1e-3)
    model = ELM(3, 50, tau_m_range=(1, 1000), tau_m_bounds=(1, 1000), tau_m_init="logspace")
    torch.testing.assert_close(model.tau_m, torch.logspace(0, 3, 50), rtol=1e-3, atol=1e-3)
    model = ELM(3, 5, tau_m_range=(1, 50), tau_m_bounds=(0, 1e9))
    torch.testing.assert_close(model.tau_m, torch.linspace(1, 50, 5), rtol=1e-4, atol=0)
    model = ELM(3, np.int64(50), tau_m_range=(1, 1000), tau_m_bounds=(1, 1000), tau_m_init="logspace")
    bounded = ELM(3, 5, tau_m_range=(10, 50), tau_m_bounds=None)
    with torch.no_grad():
        model.proto_tau_m.normal_(std=100)
        bounded.proto_tau_m.normal_(std=100)
    assert bounded.tau_m.min() >= 10 and bounded.tau_m.max() <= 50 and len(bounded.tau_m.unique()) > 1
    one = ELM(3, 5, tau_m_range=(25, 25), tau_m_bounds=None)
    assert (one.tau_m == 25).all() and (ELM(3, 5, tau_m_range=(25, 25)).tau_m - 25).abs().max() < 1e-3
    assert (
        (model.tau_m >= 1).all()
        and (model.tau_m <= 1000).all()
        and torch.isfinite(model.step_parameters().kappa_m).all()
    )


@pytest.mark.parametrize(
    "wrong,word",
    [
        (dict(d_m=0), "d_m=0"),
        (dict(d_m=True), "d_m=True"),
        (dict(checkpoint_steps=2.5), "checkpoint_steps=2.5"),
        (dict(tau_m_bounds=(0, float("inf"))), "tau_m_bounds"),
        (dict(tanh="sigmoid"), "tanh='sigmoid'"),
        (dict(tau_m_range=(0, 3)), "tau_m_range"),
        (dict(tau_s=-1.0), "tau_s"),
        (dict(tau_m_bounds=(5, 50)), "tau_m_bounds"),
        (dict(delta_t=0), "delta_t"),
        (dict(engine="fast"), "ELM_ENGINE"),
    ],
)
def test_wrong_arguments_are_named(wrong, word):
    with pytest.raises(ValueError, match=word):
        ELM(4, **wrong)(torch.zeros(2, 1, 4))


def test_wrong_shapes_are_named():
    model = ELM(4, 3)
    with pytest.raises(ValueError, match="input_size=4"):
        model(torch.zeros(5, 2, 3))
    with pytest.raises(ValueError, match="state has shapes"):
        model(torch.zeros(5, 2, 4), model.zero_state(torch.zeros(3, 4)))
    with pytest.raises(ValueError, match="d_tree"):
        BranchELM(10, routing="none", d_tree=3, d_brch=3)
    with pytest.raises(ValueError, match="covering.*3 \\* 3 = 9 < 10"):
        BranchELM(10, routing="covering", d_tree=3, d_brch=3)


@given(input_size=st.integers(1, 40), d_tree=st.integers(1, 12), d_brch=st.integers(1, 12), seed=st.integers(0, 9))
def test_covering_routing_reads_every_input_as_often_as_the_others(input_size, d_tree, d_brch, seed):
    assume(d_tree * d_brch >= input_size)
    branches, mask = neuron_init.route("covering", input_size, d_tree, d_brch, seed)
    assert mask.all() and branches.shape == (d_tree, d_brch)
    often = torch.bincount(branches.flatten(), minlength=input_size)
    assert often.max() - often.min() <= 1 and often.min() == d_tree * d_brch // input_size
    if d_brch <= input_size // 2:  # no branch reads an input twice
        assert all(len(set(branch)) == d_brch for branch in branches.tolist())


def test_random_routing_leaves_channels_unread_and_covering_routing_none():
    """SHD: 100 branches of 15 of the 700 channels, with probability (1 - 15 / 700)^100 = 0.115 unread."""
    unread = [
        float((torch.bincount(neuron_init.route("random", 700, 100, 15, seed)[0].flatten(), minlength=700) == 0).sum())
        for seed in range(20)
    ]
    assert np.mean(unread) / 700 == pytest.approx(0.115, abs=0.01)
    covering = neuron_init.route("covering", 700, 100, 15, 0)[0].flatten()
    assert set(torch.bincount(covering).tolist()) == {2, 3}


# Tables S8 to S10. The published ELM counts hold 5 d_m, where equation 1 names d_m + 2 (tau_m, the read-out's bias).
@pytest.mark.parametrize(
    "d_m,published",
    [(10, 26060), (15, 39390), (20, 52920), (25, 66650), (35, 94710), (50, 138300), (75, 214950), (100, 296600)],
)
def test_published_elm_parameter_counts(d_m, published):
    model = ELM(1278, d_m, d_o=2)
    mlp_and_readout = sum(p.numel() for p in model.mlp.parameters()) + model.w_y.weight.numel()
    assert mlp_and_readout + 5 * d_m == published
    assert parameters(model) == mlp_and_readout + 2 + d_m  # what equation 1 names: read-out bias, tau_m


@pytest.mark.parametrize("d_m,d_brch,published,equations", [(20, 100, 8104, 8022), (15, 65, 5329, 5267)])
def test_published_branch_elm_parameter_counts(d_m, d_brch, published, equations):
    assert parameters(BranchELM(1278, d_m, d_o=2, d_tree=45, d_brch=d_brch)) == equations
    assert parameters(BranchELM(1278, d_m, d_o=2, d_tree=45, d_brch=d_brch, learn_tau_m=False)) == equations - d_m
    assert published - equations == 4 * d_m + 2  # the published rule holds 4 d_m + 2 more


@pytest.mark.parametrize(
    "n,published", [(15, 77670), (25, 130450), (50, 265900), (100, 551800), (150, 857700), (250, 1529500)]
)
def test_published_lstm_parameter_counts(n, published):
    model = LSTM(1278, n, 2)
    assert parameters(model) - 2 == pytest.approx(published, abs=5 if n < 50 else 50)
    assert n != 15 or parameters(model) == 77672


@pytest.mark.parametrize("row", published_neuronio().itertuples(), ids=lambda row: f"{row.model}-{row.size}")
def test_published_flops(row):
    """Within 1 % for ELM and LSTM. The published Branch-ELM counts are 4 to 7 % above its equations, without a rule."""
    make = {"ELM": ELM, "Branch-ELM": BranchELM, "LSTM": LSTM}[row.model]
    assert count(make(1278, row.size, d_o=2)) == pytest.approx(
        row.flops_per_sample, rel=0.08 if row.model == "Branch-ELM" else 0.01
    )


def test_released_weights_are_checked_before_they_are_read(shared, tmp_path):
    folder = shutil.copytree(shared / "official" / "num_memory_1", tmp_path / "copy")
    (folder / "neuronio_best_model_state.pt").chmod(0o644)
    with (folder / "neuronio_best_model_state.pt").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="sha256"):
        load_released(folder)
    (folder / "model_config.json").unlink()
    with pytest.raises(DataError, match="model_config.json is missing"):
        load_released(folder)
