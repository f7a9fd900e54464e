"""The temporal convolutional network of Beniaguev et al. 2021."""

import pytest
import torch

from elm_lib.models import cost
from elm_lib.models.registry import build
from elm_lib.models.tcn import TCN


def test_size_and_receptive_field_are_the_published_ones():
    model = build({"kind": "tcn", "width": 128}, input_size=1278, d_o=2)
    assert model.receptive_field == 153
    assert cost.parameters(model) == pytest.approx(9.2e6, rel=0.01)
    assert cost.count(model, 500) == pytest.approx(2 * 500 * cost.parameters(model), rel=0.01)


def test_it_is_causal_and_looks_back_as_far_as_it_says():
    model = TCN(3, 4, 2, depth=3, kernel_first=5, kernel=4, batch_first=True).double().eval()
    x = torch.randn(1, 40, 3, dtype=torch.float64, requires_grad=True)
    y, state = model(x)
    assert y.shape == (1, 40, 2) and state is None and model.receptive_field == 11
    (grad,) = torch.autograd.grad(y[0, 30].sum(), x)
    reached = grad[0].abs().sum(1).nonzero().flatten()
    assert reached.max() == 30 and reached.min() >= 20
    model.batch_first = False
    torch.testing.assert_close(model(x.transpose(0, 1))[0].transpose(0, 1), y)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="kernel=0"):
        TCN(3, kernel=0)
    with pytest.raises(ValueError, match="state"):
        TCN(3, 4, batch_first=True)(torch.zeros(1, 2, 3), torch.zeros(1))
    with pytest.raises(ValueError, match="input_size=3"):
        TCN(3, 4, batch_first=True)(torch.zeros(1, 2, 4))
