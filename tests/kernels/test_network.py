"""Engines of layers of neurons that hear each other: the same numbers, forward and backward, as the specification."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elm_lib.kernels.network import ENGINES, Ensemble, Feedback, Masks, Past, run


def problem(feedback="shared", n=3, batch=2, steps=5, d_m=2, d_1=4, d_tree=3, depth=1, dtype=torch.float64):
    """Random leaves by name: p, past, ensemble and feedback."""
    d_1 = d_1 if depth else d_m
    shapes = {
        "p": (steps, batch, d_1, n),
        "m": (batch, d_m, n),
        "r": (batch, n),
        "a": (batch, n),
        "kappa_m": (d_m, n),
        "gain": (d_m, n),
        "w_m": (d_1, d_m, n),
        "w_r": (d_m, n),
        "b_r": (n,),
    }
    for k in range(depth):
        width = d_m if k == depth - 1 else d_1
        shapes |= {f"w{k}": (width, d_1, n), f"b{k}": (width, n)}
    if feedback == "shared":
        shapes |= {"read": (n, d_1, n)}
    elif feedback == "branch":
        shapes |= {"send": (n, d_tree, n), "read": (d_1, d_tree, n)}
    leaves = {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()}
    leaves["kappa_m"].sigmoid_()
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}


def call(
    leaves,
    engine,
    *,
    activation="relu2",
    scale=(1.7, 0.7),
    kappa_r=0.8,
    output="relu",
    kappa_q=0.6,
    masked=False,
    lengths=None,
):
    layers = [(leaves[f"w{k}"], leaves[f"b{k}"]) for k in range(3) if f"w{k}" in leaves]
    ensemble = Ensemble(
        leaves["kappa_m"],
        leaves["gain"],
        leaves["w_m"],
        layers,
        activation,
        scale,
        leaves["w_r"],
        leaves["b_r"],
        kappa_r,
        output,
    )
    back = None
    if "read" in leaves:
        send = leaves.get("send")
        decay = torch.tensor(kappa_q, dtype=leaves["p"].dtype)
        if send is not None:
            decay = torch.linspace(0.1, 0.9, send[0].numel(), dtype=send.dtype).view(send.shape[1:])
        back = Feedback(decay, send, leaves["read"])
    masks = Masks()
    if masked:
        generator = torch.Generator().manual_seed(1)
        a, z = (torch.rand(leaves[k].shape, generator=generator).round() * 2 for k in ("a", "m"))
        masks = Masks(a.to(leaves["p"]), z.to(leaves["p"]))
    past = Past(leaves["m"], leaves["r"], leaves["a"])
    return run(leaves["p"], past, ensemble, back, masks, None if lengths is None else torch.tensor(lengths), engine)


def results(leaves, engine, **options):
    """Outputs and gradients of a weighted sum of them."""
    found = call(leaves, engine, **options)
    values = [found.a, *found.past, *([] if found.q is None else [found.q])]
    loss = sum((torch.linspace(-1, 2, v.numel(), dtype=v.dtype).view_as(v) * v).sum() for v in values)
    return values + list(torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))


@settings(max_examples=60)
@given(
    engine=st.sampled_from([name for name in ENGINES if name != "reference"]),
    feedback=st.sampled_from([None, "shared", "branch"]),
    depth=st.integers(0, 2),
    activation=st.sampled_from(["relu", "silu", "relu2"]),
    output=st.sampled_from(["identity", "relu", "spike"]),
    kappa_r=st.sampled_from([0.8, 1.0]),
    kappa_q=st.sampled_from([0.0, 0.6]),
    masked=st.booleans(),
    lengths=st.sampled_from([None, [5, 5], [0, 3], [4, 1]]),
    n=st.sampled_from([1, 3, 9]),
)
def test_engines_agree_with_the_specification(
    engine, feedback, depth, activation, output, kappa_r, kappa_q, masked, lengths, n
):
    if engine == "cpu" and (feedback == "branch" or depth == 2):
        engine = "auto"
    torch.manual_seed(n)
    leaves = problem(feedback, n, depth=depth)
    options = dict(
        activation=activation, output=output, kappa_r=kappa_r, kappa_q=kappa_q, masked=masked, lengths=lengths
    )
    for ours, expected in zip(results(leaves, engine, **options), results(leaves, "reference", **options), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def float32(leaves):
    return {name: leaf.detach().float().requires_grad_() for name, leaf in leaves.items()}


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "reference"])
def test_single_precision_over_500_steps(engine):
    leaves = problem(n=9, steps=500)
    with torch.no_grad():  # a network that forgets: rounding does not grow
        leaves["kappa_m"].copy_(torch.linspace(0.3, 0.95, 18).view(2, 9))
        leaves["gain"].copy_(1 - leaves["kappa_m"])
        for name in ("w_m", "w0", "read"):
            leaves[name].mul_(0.2)
    options = {"activation": "silu", "output": "identity"}
    for ours, expected in zip(
        results(float32(leaves), engine, **options), results(leaves, "reference", **options), strict=True
    ):
        assert float((ours.detach().double() - expected.detach()).abs().max() / expected.detach().abs().max()) < 1e-4


@pytest.mark.skipif("cpu" not in ENGINES, reason="needs numba")
def test_the_cpu_engine_gives_the_same_bits_whatever_is_beside_a_sample():
    many = float32(problem(batch=11, n=19, steps=20))
    one = results(many, "cpu")
    torch.set_num_threads(2)
    for a, b in zip(one, results(many, "cpu"), strict=True):
        assert torch.equal(a, b)
    alone = {k: (v[:, 9:10] if k == "p" else v[9:10] if k in ("m", "r", "a") else v) for k, v in many.items()}
    assert torch.equal(call(alone, "cpu").a, one[0][:, 9:10])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(engine, bad):
    leaves = problem()
    with torch.no_grad():
        leaves["p"][1, 0, 2, 1] = bad
    ours, expected = (call(leaves, name, activation="silu").a for name in (engine, "reference"))
    assert torch.allclose(ours, expected, equal_nan=True) and bool(ours[:, 1].isfinite().all())
    assert bool(ours[2:, 0].isnan().any()) == (bad != bad)


def test_an_engine_that_does_not_serve_says_so():
    for feedback, depth in (("branch", 1), ("shared", 2)):
        with pytest.raises(ValueError, match="choose 'auto' or 'torch'"):
            call(problem(feedback, depth=depth), "cpu")
    with pytest.raises(ValueError, match="engine='fast'"):
        call(problem(), "fast")
