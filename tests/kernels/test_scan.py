"""The states of a state-space model: step by step, by doubling, and compiled."""

import pytest
import torch

from elm_lib.kernels.scan import _Compiled, by_doubling, scan


def arguments(steps: int, states: int = 5, batch: int = 3):
    torch.manual_seed(0)
    a = torch.complex(*(0.7 * torch.rand(2, states, dtype=torch.float64)))
    return a, torch.randn(batch, steps, 2 * states, dtype=torch.float64)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 13])
def test_every_way_is_the_recurrence_and_has_its_gradients(steps, backwards):
    a, x = arguments(steps)
    order = reversed(range(steps)) if backwards else range(steps)
    z, state, states = torch.complex(*x.chunk(2, -1)), torch.zeros(3, 5, dtype=torch.complex128), {}
    for t in order:
        states[t] = state = a * state + z[:, t]
    expected = torch.stack([states[t] for t in range(steps)], 1)
    expected = torch.cat([expected.real, expected.imag], -1)

    def doubled(a, x):
        z = torch.complex(*x.chunk(2, -1))
        h = by_doubling(a, z.flip(1)).flip(1) if backwards else by_doubling(a, z)
        return torch.cat([h.real, h.imag], -1)

    found = []
    for run in (doubled, lambda a, x: _Compiled.apply(a.real, a.imag, x, backwards)):
        given = [y.clone().requires_grad_() for y in (a, x)]
        h = run(*given)
        torch.testing.assert_close(h, expected)
        torch.manual_seed(1)
        found.append(torch.autograd.grad((h * torch.randn_like(h)).sum(), given, materialize_grads=True))
    torch.testing.assert_close(*found)
    assert torch.equal(scan(a, x, backwards), h)


def test_second_derivatives_are_refused_by_name():
    a, x = (y.requires_grad_() for y in arguments(4))
    with pytest.raises(RuntimeError, match="no second derivative here .*by_doubling"):
        torch.autograd.grad(scan(a, x).sum(), x, create_graph=True)
