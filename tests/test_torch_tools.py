"""Tools of torch that hold any module: construction, meta tensors, torch.fx, derivatives, FSDP."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from elm_lib import ELM, BranchELM


def elm(**options):
    return ELM(6, 5, **{"d_o": 2, "batch_first": True} | options)


def branch(**options):
    return BranchELM(6, 5, **{"d_o": 2, "d_tree": 3, "d_brch": 4, "routing": "random", "batch_first": True} | options)


BOTH = pytest.mark.parametrize("make", [elm, branch])


def test_repr_says_what_it_is():
    text = repr(ELM(7, 3, d_o=2, lambda_=4.5, memory_update="improved", tau_s=torch.tensor([1.0, 2, 3, 4, 5, 6, 7])))
    for word in ("ELM(", "7, d_m=3, d_o=2", "lambda_=4.5", "'improved'", "tau_s=1 to 7", "tau_m_bounds=(0, 500)"):
        assert word in text
    assert "d_tree" not in text
    text = repr(branch())
    assert text.startswith("BranchELM(") and "d_tree=3, d_brch=4, routing='random'" in text


@BOTH
def test_reset_parameters_gives_what_construction_gives(make):
    torch.manual_seed(1)
    first = make(routing_seed=3) if make is branch else make()
    torch.manual_seed(2)
    other = make(routing_seed=3) if make is branch else make()
    with torch.no_grad():
        for tensor in (*other.parameters(), other.tau_s):
            tensor.add_(1.0)
    torch.manual_seed(4)
    other.reset_parameters()
    torch.manual_seed(4)
    for layer in (*first.mlp, first.w_y):
        layer.reset_parameters()
    for name, value in first.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@BOTH
def test_meta_tensors_have_the_shapes_and_become_a_neuron(make):
    neuron = make(device="meta")
    y, state = neuron(torch.zeros(4, 9, 6, device="meta"))
    assert y.is_meta and y.shape == (4, 9, 2) and state.m.shape == (4, 5)
    with torch.device("meta"):
        assert all(tensor.is_meta for tensor in make().state_dict().values() if tensor.dtype != torch.uint8)
    neuron.to_empty(device="cpu").reset_parameters()
    assert (neuron.tau_s == 5).all() and (neuron.proto_w_s == 0.5).all()
    assert neuron(torch.ones(4, 9, 6))[0].isfinite().all()
    skipped = nn.utils.skip_init(type(neuron), 6, 5, d_o=2, batch_first=True, **_routing(make))
    skipped.load_state_dict(neuron.state_dict())
    torch.testing.assert_close(skipped(torch.ones(4, 9, 6))[0], neuron(torch.ones(4, 9, 6))[0], rtol=0, atol=0)


def _routing(make):
    return dict(d_tree=3, d_brch=4, routing="random") if make is branch else {}


@BOTH
def test_dtype_and_device_reach_every_number(make):
    neuron = make(dtype=torch.float64, device="cpu")
    numbers = [tensor for tensor in neuron.state_dict().values() if tensor.is_floating_point()]
    assert numbers and all(tensor.dtype == torch.float64 for tensor in numbers)
    assert neuron(torch.zeros(1, 2, 6, dtype=torch.float64))[1].s.dtype == torch.float64
    with pytest.raises(ValueError, match=r"dtype=torch\.int64"):
        make(dtype=torch.int64)
    assert {"device", "dtype"} <= set(inspect.signature(type(neuron)).parameters)


@BOTH
def test_fake_tensors_have_the_shapes(make):
    neuron = make()
    with FakeTensorMode(allow_non_fake_inputs=True):
        y, state = neuron(torch.zeros(4, 9, 6))
    assert y.shape == (4, 9, 2) and state.s.shape == (4, neuron.n_trace)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.neuron, self.after = nn.Linear(3, 6), elm(), nn.Linear(2, 1)

    def forward(self, x):
        y, state = self.neuron(torch.relu(self.before(x)))
        z, again = self.neuron(torch.relu(self.before(x)), hx=state)
        return self.after(y + z), again.m


def test_fx_holds_a_neuron_as_one_call():
    model, x = Model(), torch.randn(2, 9, 3)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"].count("neuron") == 2
    for ours, expected in zip(traced(x), model(x), strict=True):
        assert torch.equal(ours, expected)
    with pytest.raises(TypeError, match="trace a module that holds it"):
        torch.fx.symbolic_trace(elm())


@BOTH
def test_forward_derivatives_are_those_of_backward(make):
    neuron = make().double()
    x, toward = torch.randn(2, 2, 70, 6, dtype=torch.float64)
    weight, tangent = neuron.mlp[0].weight, torch.randn_like(neuron.mlp[0].weight)
    with forward_ad.dual_level():
        duals = {"mlp.0.weight": forward_ad.make_dual(weight, tangent)}
        y, _ = torch.func.functional_call(neuron, duals, (forward_ad.make_dual(x, toward),))
        slope = forward_ad.unpack_dual(y).tangent
    x.requires_grad_()
    y, _ = neuron(x)
    along = torch.randn_like(y)
    by_x, by_weight = torch.autograd.grad((y * along).sum(), (x, weight))
    torch.testing.assert_close((slope * along).sum(), (by_x * toward).sum() + (by_weight * tangent).sum())


@BOTH
def test_gradients_of_each_sample(make):
    """What opacus computes by hooks, which a neuron refuses, torch.func computes."""
    neuron, x = make().double(), torch.randn(3, 20, 6, dtype=torch.float64)
    learned = {name: p for name, p in neuron.named_parameters() if p.requires_grad}
    loss = lambda p, x: torch.func.functional_call(neuron, p, (x,))[0].pow(2).sum()  # noqa: E731
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(learned, x)
    for n in range(3):
        expected = torch.autograd.grad(neuron(x[n : n + 1])[0].pow(2).sum(), list(learned.values()))
        for ours, theirs in zip(each.values(), expected, strict=True):
            torch.testing.assert_close(ours[n], theirs)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
@pytest.mark.parametrize("options", [{}, {"d_mlp": 3, "tau_m_bounds": None}])
def test_fsdp_frees_and_fills_the_parameters(options, tmp_path):
    """The compiled loops read parameters, and must not hold their storage."""
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        whole = ELM(100, 4, d_o=2, batch_first=True, **options)
        sharded = copy.deepcopy(whole)
        fully_shard(sharded, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
        x = torch.randn(2, 70, 100)
        for _ in range(2):
            losses = []
            for module in (whole, sharded):
                y, _ = module(x)
                losses.append(y.pow(2).mean())
                losses[-1].backward()
                torch.optim.SGD(module.parameters(), lr=0.1).step()
                module.zero_grad()
            torch.testing.assert_close(*losses)
    finally:
        torch.distributed.destroy_process_group()
