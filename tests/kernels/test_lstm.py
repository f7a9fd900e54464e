"""The loop of an LSTM: compiled, in torch, and as torch.nn.LSTM has it."""

import pytest
import torch

from elm_lib.kernels import lstm
from elm_lib.kernels.spikes import Spikes
from elm_lib.models.lstm import LSTM


def arguments(steps, batch, n, dtype=torch.float64):
    torch.manual_seed(0)
    p = torch.randn(steps, batch, 4 * n, dtype=dtype)
    w_hh = torch.randn(4 * n, n, dtype=dtype) / n**0.5
    mask = (torch.rand(batch, n) < 0.7).to(dtype) / 0.7
    h, c = torch.randn(2, batch, n, dtype=dtype)
    return [x.requires_grad_() for x in (p, h, c)] + [mask, w_hh.requires_grad_()]


def outcome(run, given):
    """Outputs and all gradients."""
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    h_all, c_end = run(*given)
    torch.manual_seed(1)
    ((h_all * torch.randn_like(h_all)).sum() + (c_end * torch.randn_like(c_end)).sum()).backward()
    return [h_all.detach(), c_end.detach(), *(x.grad for x in given if x.requires_grad)]


@pytest.mark.parametrize("shape", [(13, 8, 20), (9, 1, 7), (9, 2, 8), (11, 3, 33), (5, 19, 40), (1, 8, 16)])
def test_the_compiled_loop_does_what_the_loop_in_torch_does(shape):
    """Numbers of samples and units that do and do not fill whole blocks and registers."""
    given = arguments(*shape)
    for ours, theirs in zip(outcome(lstm._Compiled.apply, given), outcome(lstm._Loop.apply, given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_sample_gets_the_same_numbers_whichever_samples_are_beside_it():
    p, h, c, mask, w_hh = (x.detach() for x in arguments(7, 11, 9, torch.float32))
    whole, _ = lstm.cell(p, h, c, mask, w_hh)
    for part in (slice(0, 8), slice(3, 11)):
        some, _ = lstm.cell(p[:, part], h[part], c[part], mask[part], w_hh)
        assert torch.equal(some, whole[:, part])
    p[4, 2] = torch.nan
    broken, _ = lstm.cell(p, h, c, mask, w_hh)
    others = [k for k in range(11) if k != 2]
    assert broken[4:, 2].isnan().all() and torch.equal(broken[:, others], whole[:, others])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_it_is_the_cell_of_nn_lstm(batch_first, sparse):
    torch.manual_seed(2)
    model = LSTM(6, 5, batch_first=batch_first).double()
    assert lstm.is_compiled(model.weights()[1])
    x = (torch.rand(3, 9, 6) < 0.4).double()
    state = tuple(torch.randn(2, 1, 3, 5, dtype=torch.float64))
    dense = x if batch_first else x.transpose(0, 1)
    ours, (h, c) = model(Spikes.from_dense(x) if sparse else dense, state)
    theirs, (h_n, c_n) = model.cell(dense, state)
    torch.testing.assert_close([ours, h, c], [theirs, h_n, c_n], rtol=1e-12, atol=1e-12)
    weights = model.weights()
    for mine, other in zip(
        torch.autograd.grad(ours.square().sum() + c.sum(), weights),
        torch.autograd.grad(theirs.square().sum() + c_n.sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-11)


def test_what_the_loop_cannot_do_is_said_or_done_by_nn_lstm():
    model = LSTM(4, 3, batch_first=True)
    y, _ = model(torch.randn(2, 5, 4))
    with pytest.raises(RuntimeError, match=r"no second derivative here .* torch\.nn\.LSTM has one"):
        torch.autograd.grad(y.sum(), model.weights(), create_graph=True)
    y, _ = model(torch.randn(5, 4))  # without a batch, as nn.LSTM allows
    assert y.shape == (5, 3)
    values = dict(model.named_parameters())
    x = torch.randn(2, 5, 4)
    grads = torch.func.grad(lambda values: torch.func.functional_call(model, values, x)[0].sum())(values)
    assert grads.keys() == values.keys()
