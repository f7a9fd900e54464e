"""Engines of the recurrence against the reference. On a machine without a GPU the Triton kernels run interpreted."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elm_lib import ELM, BranchELM
from elm_lib.kernels import affine
from elm_lib.kernels.recurrence import COMPILED, ENGINES, MemoryMLP, bptt, recurrence
from elm_lib.kernels.recurrence import engine_cuda as cuda
from elm_lib.kernels.spikes import Spikes, project

GPU = torch.cuda.is_available()
FAST = [name for name in ENGINES if name != "reference"]
NAMES = ["m", "p", "m_0", "kappa_m", "gain", "w_m", "w_2", "b_2", "w_3", "b_3"]


def problem(steps, batch, d_m, d_1, l_mlp=1, dtype=torch.float64, seed=0, device="cpu"):
    """p, m_0, kappa_m, gain, then w_m and (weight, bias) of each later layer."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    d_1 = d_1 if l_mlp else d_m
    layers = []
    for k in range(l_mlp):
        wide = d_m if k == l_mlp - 1 else d_1
        layers += [draw(wide, d_1) / d_1**0.5, draw(wide)]
    tensors = [
        draw(steps, batch, d_1),
        draw(batch, d_m),
        torch.rand(d_m, generator=generator, dtype=torch.float64),
        draw(d_m).abs(),
        draw(d_1, d_m) / d_m**0.5,
        *layers,
    ]
    return [t.to(device, dtype).requires_grad_() for t in tensors]


def run(engine, tensors, activation="relu", scale=(1.0, 1.0)):
    p, m_0, kappa_m, gain, w_m, *layers = tensors
    mlp = MemoryMLP(w_m, list(zip(layers[::2], layers[1::2])), activation, scale)
    return recurrence(p, m_0, kappa_m, gain, mlp, engine)


def outputs(engine, tensors, activation="relu", scale=(1.0, 1.0)):
    m = run(engine, tensors, activation, scale)
    toward = torch.randn(m.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(m)
    return [m.detach(), *torch.autograd.grad((m * toward).sum(), tensors)]


def device_of(engine):
    return "cuda" if engine == "cuda" and GPU else "cpu"


def assert_equal(engine, tensors, tolerance, **how):
    here = [t.detach().to(device_of(engine)).requires_grad_() for t in tensors]
    for name, ours, theirs in zip(NAMES, outputs(engine, here, **how), outputs("reference", tensors, **how)):
        error = (ours.cpu() - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)
        assert error <= tolerance, f"{engine}: {name} differs by {error:.1e}"


@pytest.fixture
def tiles(monkeypatch):
    monkeypatch.setattr(cuda, "TILES_FROM", (1, 1))


@settings(max_examples=12 if GPU else 60, deadline=None)  # a GPU compiles for each size
@given(
    engine=st.sampled_from(FAST),
    steps=st.integers(1, 9),
    batch=st.integers(1, 4),
    d_m=st.integers(1, 9),
    d_1=st.integers(1, 19),
    l_mlp=st.integers(0, 2),
    activation=st.sampled_from(["relu", "silu", "relu2"]),
    scale=st.sampled_from([(1.0, 1.0), (1.7159, 2 / 3)]),
)
def test_engines_equal_the_reference(engine, steps, batch, d_m, d_1, l_mlp, activation, scale):
    l_mlp = min(l_mlp, 1) if engine in COMPILED else l_mlp
    assert_equal(engine, problem(steps, batch, d_m, d_1, l_mlp), 1e-10, activation=activation, scale=scale)


@pytest.mark.parametrize("d_m", [100, 150])
def test_weights_that_do_not_fit_registers(d_m):
    assert_equal("cuda", problem(4, 2, d_m, 2 * d_m), 1e-10)


@pytest.mark.parametrize(("batch", "d_m", "d_1"), [(1, 1, 1), (5, 20, 40), (18, 33, 70)])
@pytest.mark.parametrize("activation", ["relu", "silu", "relu2"])
def test_tensor_core_tiles(tiles, batch, d_m, d_1, activation):
    assert_equal("cuda", problem(5, batch, d_m, d_1, dtype=torch.float32), 1e-5, activation=activation)


@pytest.mark.parametrize("engine", FAST)
def test_float32_over_2000_steps(engine):
    """Relative to the largest entry; the interpreter is slow, so it gets 150."""
    steps = 150 if engine == "cuda" and not GPU else 2000
    assert_equal(engine, problem(steps, 2, 20, 40, dtype=torch.float32), 1e-5)


@pytest.mark.parametrize("engine", FAST)
def test_gradcheck(engine):
    tensors = [t.detach().to(device_of(engine)).requires_grad_() for t in problem(3, 2, 3, 5)]
    assert torch.autograd.gradcheck(lambda *t: run(engine, t, "silu"), tensors)


def test_double_backward_on_the_reference():
    assert torch.autograd.gradgradcheck(lambda *t: run("reference", t, "silu"), problem(2, 1, 2, 3))


@pytest.mark.parametrize("engine", FAST)
def test_time_chunks_of_backward_change_nothing(engine, monkeypatch):
    monkeypatch.setitem(bptt.CHUNK, device_of(engine), 5 * 11)
    assert_equal(engine, problem(11, 2, 4, 7), 1e-10)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, under the interpreter
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_comes_out_as_in_the_reference(engine, bad):
    tensors = problem(4, 2, 3, 5)
    with torch.no_grad():
        tensors[0][1, 0, 2] = bad
    expected = run("reference", tensors).detach()
    ours = run(engine, [t.detach().to(device_of(engine)) for t in tensors]).cpu()
    assert torch.equal(ours.isnan(), expected.isnan())
    assert torch.allclose(ours, expected, equal_nan=True)
    assert expected[1:, 0].isnan().any() if bad != bad else expected.isfinite().all()


def test_the_cpu_engine_gives_the_same_bits_at_any_thread_count():
    tensors = problem(50, 37, 20, 40, dtype=torch.float32)  # five blocks of samples, the last not full
    one = run("cpu", tensors)
    torch.set_num_threads(2)
    assert torch.equal(one, run("cpu", tensors))


@pytest.mark.parametrize("d_m", [20, 150])
def test_a_sample_gets_the_same_bits_on_the_cpu_engine_whatever_is_beside_it(d_m):
    eight = problem(20, 8, d_m, 2 * d_m, dtype=torch.float32)
    two = [tensor[..., :2, :].detach().requires_grad_() if k < 2 else tensor for k, tensor in enumerate(eight)]
    found = []
    for tensors in (eight, two):
        assert_equal("cpu", tensors, 1e-5)
        m = run("cpu", tensors)
        found.append([part[..., :2, :] for part in (m, *torch.autograd.grad(m.square().sum(), tensors[:2]))])
    for beside_six, alone in zip(*found):
        assert torch.equal(beside_six, alone)


@pytest.mark.parametrize("engine", FAST)
def test_tensors_that_are_not_contiguous(engine):
    p, m_0, kappa_m, gain, w_m, w_2, b_2 = (t.detach() for t in problem(6, 3, 4, 7))
    strided = [
        p.transpose(0, 1).contiguous().transpose(0, 1),
        m_0,
        kappa_m,
        gain,
        w_m.T.contiguous().T,
        w_2,
        torch.stack([b_2, b_2], 1)[:, 0],
    ]
    assert not strided[0].is_contiguous() and not strided[-1].is_contiguous()
    expected = outputs("reference", [t.clone().requires_grad_() for t in (p, m_0, kappa_m, gain, w_m, w_2, b_2)])
    for ours, theirs in zip(outputs(engine, [t.to(device_of(engine)).requires_grad_() for t in strided]), expected):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", [name for name in FAST if name != "cuda" or not GPU])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_empty_batch(engine, threads):
    torch.set_num_threads(threads)
    for ours, theirs in zip(outputs(engine, problem(4, 0, 3, 5)), outputs("reference", problem(4, 0, 3, 5))):
        assert torch.equal(ours, theirs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own():
    """In an interpreter of its own: forking this one, with its threads, would prove something else."""
    script = """
import os, torch
from test_recurrence import problem, run
torch.set_num_threads(2)
tensors = [t.detach() for t in problem(5, 37, 4, 7)]
run("cpu", tensors)
child = os.fork()
if child == 0:
    run("cpu", tensors)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root / "tests" / "kernels", check=True)


@pytest.mark.skipif(GPU, reason="one is here")
def test_kernels_compile_for_a_gpu_that_is_not_here():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    script = Path(__file__).parents[1] / "fixtures" / "compile_kernels.py"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("sm_90") == 8


@pytest.mark.parametrize(
    "model",
    [
        ELM(30, 5, d_o=2, batch_first=True),
        BranchELM(30, 5, d_o=2, d_tree=6, d_brch=7, batch_first=True),
        BranchELM(30, 5, d_o=2, d_tree=6, d_brch=7, batch_first=True, tau_s=torch.linspace(2, 9, 42)),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_checkpoints_change_nothing_but_memory(model, sparse):
    model = copy.deepcopy(model).double()
    x = spikes(3, 17, 30) if sparse else spikes(3, 17, 30).dense()
    whole, (s, m) = model(x)
    expected = [*torch.autograd.grad(whole.square().sum(), [p for p in model.parameters() if p.requires_grad]), s, m]
    model.checkpoint_steps = 5
    pieces, (s, m) = model(x)
    ours = [*torch.autograd.grad(pieces.square().sum(), [p for p in model.parameters() if p.requires_grad]), s, m]
    for a, b in zip(ours, expected):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_large_products_in_pieces_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(affine, "LARGE", 1)
    monkeypatch.setattr(affine, "PIECE", 21)  # numbers: three rows, and what is left
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 4, 3), (7, 3), (7,))
    )
    x = x.transpose(0, 1)
    assert "Affine" in type(affine.affine(x, weight, bias).grad_fn).__name__
    torch.testing.assert_close(affine.affine(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    assert torch.autograd.gradcheck(affine.affine, (x, weight, bias))
    assert torch.autograd.gradgradcheck(affine.affine, (x, weight, bias))
    assert affine.affine(x[:0], weight, bias).shape == (0, 5, 7)
    with torch.autocast("cpu", torch.bfloat16):
        assert affine.affine(x.float(), weight.float(), bias.float()).dtype == torch.bfloat16


def test_large_products_have_forward_derivatives(monkeypatch):
    monkeypatch.setattr(affine, "LARGE", 1)
    x, weight, tangent, bias = torch.randn(6, 3), torch.randn(7, 3), torch.randn(7, 3), torch.randn(7)
    with torch.autograd.forward_ad.dual_level():
        y = affine.affine(x, torch.autograd.forward_ad.make_dual(weight, tangent), bias)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(y).tangent, x @ tangent.T)


def test_large_memory_is_memory():
    x = affine.empty(torch.zeros(1), 3, 1 << 20)  # 12 MB
    assert x.shape == (3, 1 << 20) and x.dtype == torch.float32
    assert x.fill_(1.5).sum() == 1.5 * 3 * (1 << 20)


def spikes(batch, steps, channels, dtype=torch.float64, per_row=3):
    """Random, some channels twice in a row, some rows empty."""
    generator = torch.Generator().manual_seed(3)
    counts = torch.randint(0, per_row + 1, (batch * steps,), generator=generator)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    channel = torch.randint(0, channels, (int(row_ptr[-1]),), generator=generator)
    return Spikes(row_ptr, channel, torch.randn(len(channel), generator=generator).to(dtype), (batch, steps, channels))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sparse_input_equals_dense_input(dtype):
    x, weight = spikes(2, 9, 12, dtype), torch.randn(12, 4).to(dtype).requires_grad_()
    toward = torch.randn(2, 9, 4).to(dtype)
    sparse, dense = project(x, weight), x.dense() @ weight
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(sparse, dense, rtol=tolerance, atol=tolerance)
    a, b = (torch.autograd.grad((y * toward).sum(), weight)[0] for y in (sparse, dense))
    torch.testing.assert_close(a, b, rtol=5 * tolerance, atol=5 * tolerance)


def test_what_is_not_finite_stays_at_its_step_where_nothing_is_carried():
    x = Spikes(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1]), torch.tensor([torch.inf, 1.0]), (1, 3, 2))
    weight = torch.ones(2, 3, requires_grad=True)
    y = project(x, weight)
    assert torch.equal(y[0, :, 0], torch.tensor([torch.inf, 1.0, 0.0]))
    (grad,) = torch.autograd.grad(y, weight, torch.tensor([0.0, 1.0, torch.inf]).view(1, 3, 1).expand(1, 3, 3))
    assert torch.equal(grad[1], torch.ones(3))


def test_spikes_without_a_spike():
    x = Spikes(torch.zeros(11, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (2, 5, 12))
    model = ELM(12, 4, d_o=1, batch_first=True)
    torch.testing.assert_close(model(x)[0], model(torch.zeros(2, 5, 12))[0])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(channel=torch.full((4,), 12)), "0..11"),
        (dict(channel=torch.full((4,), -1)), "0..11"),
        (dict(row_ptr=torch.tensor([0, 9, 4])), "must rise"),
        (dict(row_ptr=torch.tensor([0, 4])), "B T \\+ 1"),
        (dict(channel=torch.zeros(4, dtype=torch.int32)), "int64"),
    ],
)
def test_spikes_that_do_not_fit_their_shape_are_refused(change, word):
    good = Spikes(torch.tensor([0, 2, 4]), torch.zeros(4, dtype=torch.int64), torch.ones(4), (1, 2, 12))
    with pytest.raises(ValueError, match=word):
        ELM(12, 4, d_o=1, batch_first=True)(good._replace(**change))


def test_an_engine_that_cannot_be_transformed_says_which_can():
    model = ELM(12, 4, d_o=2, batch_first=True, engine="cpu")
    with pytest.raises(ValueError, match="engine='reference' or 'auto'"):
        torch.func.grad(lambda x: model(x)[0].sum())(torch.randn(2, 9, 12))


def test_functional_call_and_autocast():
    model = ELM(12, 4, d_o=2, batch_first=True)
    x = torch.randn(2, 9, 12)
    y, _ = model(x)
    again, _ = torch.func.functional_call(model, dict(model.named_parameters()), (x,))
    assert torch.equal(y, again)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low, (_, m) = model(x)
    assert m.dtype == torch.float32
    torch.testing.assert_close(low.float(), y, rtol=0.1, atol=0.1)


def test_an_engine_that_cannot_run_the_tensors_says_so():
    with pytest.raises(ValueError, match="l_mlp 0 or 1"):
        run("cpu", problem(2, 1, 2, 3, l_mlp=2))
    with pytest.raises(ValueError, match="engine"):
        ELM(3, 2, engine="fast")
