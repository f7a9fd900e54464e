"""The fitted point neurons of Table S4."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elm_lib.kernels.spikes import Spikes
from elm_lib.models import cost
from elm_lib.models.lif import BETA, LIF, THRESHOLD, _Compiled, step_by_step
from elm_lib.models.registry import build


@settings(max_examples=60)
@given(
    steps=st.integers(1, 60),
    batch=st.integers(1, 4),
    beta=st.sampled_from([0.0, BETA]),
    scale=st.sampled_from([0.1, 0.5, 2.0]),
    seed=st.integers(0, 999),
)
def test_compiled_loops_equal_the_equations(steps, batch, beta, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    current = scale * torch.randn(steps, batch, dtype=torch.float64, generator=generator) + 0.2
    weights = torch.randn(2, steps, batch, dtype=torch.float64, generator=generator)
    kappas = torch.tensor([0.95, 0.9], dtype=torch.float64)
    results = []
    for run in (step_by_step, _Compiled.apply):
        leaves = [current.clone().requires_grad_(), *(k.clone().requires_grad_() for k in kappas)]
        v, theta = run(*leaves, beta)
        loss = (weights[0] * v).sum() + (weights[1] * theta).sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        results.append([v, theta, *(torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves))])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_a_spike_resets_the_membrane_and_raises_the_threshold():
    current = torch.full((6, 1), 0.6, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    v, theta = step_by_step(current, one, 0.5 * one, BETA)  # no leak: the second step passes the threshold of 1
    assert v.flatten().tolist() == pytest.approx([0.6, 1.2, 0.6, 1.2, 1.8, 0.6])
    a = [0.0, 0.0, 0.5, 0.25, 0.125, 0.5625]
    assert theta.flatten().tolist() == pytest.approx([THRESHOLD + BETA * value for value in a])


@pytest.mark.parametrize(("adaptive", "published"), [(False, 1280), (True, 1281)])
def test_the_published_number_of_parameters(adaptive, published):
    model = build({"kind": "lif", "adaptive": adaptive}, input_size=1278, d_o=2)
    assert cost.parameters(model) == published
    assert cost.count(model, 500) > 500 * 2 * 1278


def test_sparse_dense_and_time_first_are_the_same():
    model = LIF(80, adaptive=True, batch_first=True)
    with torch.no_grad():
        model.w.mul_(10)
    x = (torch.rand(3, 50, 80) < 0.05).float()
    y, state = model(x)
    assert y.shape == (3, 50, 2) and state is None and (y[..., 0] > 0).any()
    b, t, c = x.nonzero(as_tuple=True)
    row_ptr = torch.zeros(151, dtype=torch.int64)
    row_ptr[1:] = torch.bincount(b * 50 + t, minlength=150).cumsum(0)
    torch.testing.assert_close(model(Spikes(row_ptr, c, torch.ones(len(c)), (3, 50, 80)))[0], y, rtol=1e-4, atol=1e-4)
    model.batch_first = False
    torch.testing.assert_close(model(x.transpose(0, 1))[0].transpose(0, 1), y)


@pytest.mark.parametrize("wrong", [{"d_o": 3}, {"tau_m": 900.0}, {"delta_t": 0.0}])
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)) if "tau_m" not in wrong else "tau_m_bounds"):
        LIF(8, **wrong)
    with pytest.raises(ValueError, match="state"):
        LIF(8, batch_first=True)(torch.zeros(1, 2, 8), torch.zeros(1))
    with pytest.raises(ValueError, match="input_size=8"):
        LIF(8, batch_first=True)(torch.zeros(1, 2, 7))
