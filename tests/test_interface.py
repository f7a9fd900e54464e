"""The neuron in place of nn.LSTM, beyond shapes: states, hooks, arguments, settings that travel with the weights."""

import copy
import io
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn.utils import parametrizations, prune

from elm_lib import ELM, BranchELM
from elm_lib.interface.settings import KEY, with_settings
from elm_lib.models.registry import build
from elm_lib.models.two_tower import TwoTower


def elm(**options):
    return ELM(6, 5, **{"batch_first": True} | options)


def branch(**options):
    return BranchELM(6, 5, **{"d_tree": 3, "d_brch": 2, "batch_first": True} | options)


def lstm(**options):
    return nn.LSTM(6, 5, batch_first=True, **options)


def stepped(neuron, x):
    """The outputs (B, T, .) of one step after another."""
    outputs, state = [], None
    for x_t in x.unbind(1):
        y, state = neuron.step(x_t, state)
        outputs.append(y)
    return torch.stack(outputs, 1)


BOTH = pytest.mark.parametrize("make", [elm, branch])


# ---- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [elm, branch, lstm])
@pytest.mark.parametrize("d_o", [None, 2])
def test_a_state_owns_its_memory(make, d_o):
    module = make() if make is lstm else make(d_o=d_o)
    x = torch.randn(3, 200, 6)
    with torch.no_grad():
        y, state = module(x)
        before = y.clone()
        for part in state:
            part.view(-1, 3, part.shape[-1])[:, 1] = 7.0  # as one resets the samples that begin anew
        assert torch.equal(y, before)
        if make is not lstm:
            y, state = module.step(x[:, 0])
            before = y.clone()
            for part in state:
                part.zero_()
            assert torch.equal(y, before)
            assert all(part.untyped_storage().nbytes() == part.nbytes for part in module(x)[1])


@BOTH
def test_a_state_is_named_saved_and_loaded(make):
    neuron, x = make(), torch.randn(3, 9, 6)
    y, state = neuron(x)
    s, m = state
    assert state.s is s and state.m is m
    torch.testing.assert_close(state.m, y[:, -1], rtol=0, atol=0)  # what h_n[-1] is of an nn.LSTM
    file = io.BytesIO()
    torch.save(neuron(x.detach())[1], file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    expected = neuron(x, state)[0]
    for again in (neuron(x, hx=state), neuron(x, loaded), neuron(x, tuple(state)), neuron(x, hx=list(state))):
        torch.testing.assert_close(again[0], expected, rtol=0, atol=0)
    with pytest.raises(TypeError, match="state and hx"):
        neuron(x, state, hx=state)


# ---- layers that are read --------------------------------------------------------------------------------------------


def _old_weight_norm(layer):
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer)


REPARAMETRISED = {
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
    "old weight_norm": _old_weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
}


@pytest.mark.parametrize("how", REPARAMETRISED)
@BOTH
def test_pruned_and_normalised_layers_train_as_the_equations_say(make, how):
    neuron, x = make(d_o=2, engine="reference").double(), torch.randn(2, 5, 6, dtype=torch.float64)
    for layer in (*neuron.mlp, neuron.w_y):
        REPARAMETRISED[how](layer)
    neuron.eval()  # spectral_norm changes its estimate in training
    learned = [p for p in neuron.parameters() if p.requires_grad]
    for _ in range(2):  # a second backward, after an optimiser's step
        results = []
        for y in (neuron(x)[0], stepped(neuron, x)):
            results.append([y, *torch.autograd.grad(y.sin().sum(), learned, allow_unused=True)])
        for ours, expected in zip(*results, strict=True):
            torch.testing.assert_close(ours, expected)
        y = neuron(x)[0]
        y.sin().sum().backward()
        with torch.no_grad():
            for parameter in learned:
                parameter -= 0.1 * (0 if parameter.grad is None else parameter.grad)
        assert not torch.equal(neuron(x)[0], y)


class Wider(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n: n.mlp[1].register_forward_hook(lambda *_: None), "mlp.1 has a forward hook"),
        (lambda n: n.mlp[0].register_full_backward_hook(lambda *_: None), "mlp.0 has a backward hook"),
        (lambda n: n.mlp[0].register_forward_pre_hook(lambda layer, args: (2 * args[0],)), "mlp.0 reads .* input"),
        (lambda n: n.mlp[0].register_forward_pre_hook(lambda layer, args: (1,)), "mlp.0 changes .* input"),
        (lambda n: n.mlp.__setitem__(0, Wider(11, 10)), "mlp.0 is a .*Wider"),
        (lambda n: n.mlp.__setitem__(0, nn.Identity()), "mlp.0 is a .*Identity"),
        (lambda n: setattr(n.mlp[0], "forward", lambda x: x), "mlp.0 is a .*Linear with a forward of its own"),
        (lambda n: n.mlp.__setitem__(0, nn.Linear(11, 10, bias=False)), "mlp.0 has no bias"),
    ],
)
def test_what_cannot_take_effect_on_a_layer_is_refused_by_name(change, words):
    neuron = elm()
    change(neuron)
    for run in (lambda: neuron(torch.zeros(2, 3, 6)), lambda: neuron.step(torch.zeros(2, 6))):
        with pytest.raises((TypeError, RuntimeError), match=words):
            run()


@pytest.mark.filterwarnings("ignore")  # torch.ao is deprecated
def test_dynamic_quantisation_is_refused_by_name_but_for_the_read_out():
    neuron, x = elm(d_o=2).eval(), torch.randn(2, 9, 6)
    whole = torch.ao.quantization.quantize_dynamic(copy.deepcopy(neuron), {nn.Linear})
    with pytest.raises(TypeError, match="mlp.0 is a .*quantized"):
        whole(x)
    part = torch.ao.quantization.quantize_dynamic(neuron, {"w_y"})
    assert "quantized" in type(part.w_y).__module__
    y, _ = part(x)
    torch.testing.assert_close(y, neuron(x)[0], rtol=0.1, atol=0.02)
    torch.testing.assert_close(part.step(x[:, 0])[0], y[:, 0], rtol=0.1, atol=0.02)


def test_hooks_of_the_read_out_run_in_forward_and_in_step():
    neuron, seen = elm(d_o=2), []
    neuron.w_y.register_forward_hook(lambda layer, args, y: seen.append(args[0].shape) or 0 * y)
    assert not neuron(torch.randn(2, 3, 6))[0].any() and not neuron.step(torch.randn(2, 6))[0].any()
    assert seen == [(3, 2, 5), (2, 5)]


# ---- arguments -------------------------------------------------------------------------------------------------------


@BOTH
def test_step_checks_what_forward_checks_and_takes_one_sample(make):
    neuron, x = make(d_o=2), torch.randn(4, 6)
    y, state = neuron.step(x)
    one, own = neuron.step(x[1])
    assert one.shape == (2,) and own.m.shape == (5,)
    torch.testing.assert_close(one, y[1])
    torch.testing.assert_close(neuron.step(x[1], own)[0], neuron.step(x, state)[0][1])
    for wrong in (torch.randn(10), torch.randn(4, 1), torch.randn(3, 4, 6), torch.randn(())):
        with pytest.raises(ValueError, match="input_size=6"):
            neuron.step(wrong)
    narrow = [part[:1] for part in state]
    for given in (narrow, [state.s, state.m[:, :1]], own):
        with pytest.raises(ValueError, match="state has shapes"):
            neuron.step(x, given)


@BOTH
def test_arguments_of_nn_lstm_are_answered_with_their_equivalent(make):
    kind = type(make())
    with pytest.raises(TypeError, match=r"num_layers in the third place.*d_o=2"):
        kind(3, 5, 2)
    for name, words in {
        "hidden_size": "d_m",
        "num_layers": "stack",
        "bidirectional": "flip",
        "bias": "bias",
        "proj_size": "d_o",
        "dropout": r"nn\.Dropout",
    }.items():
        with pytest.raises(TypeError, match=f"{kind.__name__} has no {name}: .*{words}"):
            kind(3, **{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        kind(3, wrong=1)
    assert kind(6, 5).hidden_size == kind(6, 5).d_m == nn.LSTM(6, 5).hidden_size


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 3, 6, dtype=torch.float64), r"float64.*x\.to\(torch\.float32\)"),
        (torch.zeros(2, 3, 6, dtype=torch.int64), r"int64.*x\.to\(torch\.float32\)"),
        ([[[0.0] * 6] * 3] * 2, r"a list: give torch\.tensor"),
        (np.zeros((2, 3, 6)), r"numpy array: give torch\.from_numpy"),
        (None, "a NoneType: give a torch.Tensor"),
        (torch.zeros(2, 3, 6).to_sparse(), r"sparse.*to_dense\(\)"),
        (torch.nested.nested_tensor([torch.zeros(3, 6)], layout=torch.jagged), "to_padded_tensor"),
        (torch.zeros(2, 3, 6, device="meta"), r"x is on meta, the neuron on cpu: give x\.to\('cpu'\)"),
    ],
    ids=lambda value: re.sub(r"\W+", " ", str(value))[:20],
)
def test_an_input_of_another_type_is_answered_with_the_conversion(x, words):
    for run in (elm(), elm().step):
        with pytest.raises((TypeError, ValueError), match=words):
            run(x)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ((None, None), r"\(None, None\): give the state"),
        (torch.zeros(2, 2, 5), "a Tensor"),
        ((torch.zeros(2, 6), torch.zeros(2, 5).double()), r"state\.m is torch\.float64"),
        ((torch.zeros(2, 6), np.zeros((2, 5))), r"state\.m is a numpy array"),
        ((torch.zeros(1, 6), torch.zeros(1, 5)), "state has shapes"),
    ],
)
def test_a_state_of_another_type_is_answered_with_what_to_give(state, words):
    for run in (lambda: elm()(torch.zeros(2, 3, 6), state), lambda: elm().step(torch.zeros(2, 6), state)):
        with pytest.raises((TypeError, ValueError), match=words):
            run()


# ---- settings that travel with the weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (elm, dict(lambda_=4.0)),
        (elm, dict(tau_m_bounds=(0, 400))),
        (elm, dict(memory_update="improved")),
        (elm, dict(tanh="scaled")),
        (elm, dict(activation="silu")),
        (elm, dict(delta_t=2)),
        (branch, dict(routing="random")),
        (branch, dict(branch_activation="relu")),
        (lambda **k: BranchELM(6, 5, d_tree=3, d_brch=2, **k), dict(lambda_=4.0)),
    ],
)
def test_weights_do_not_load_into_a_neuron_that_computes_otherwise(make, other, tmp_path):
    (name,) = other
    neuron, strange = nn.Sequential(make()), nn.Sequential(make(**other))
    before = copy.deepcopy(strange.state_dict())
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=f"0: {name} is .* in the file"):
            strange.load_state_dict(neuron.state_dict(), strict=strict)
    assert all(torch.equal(before[key], value) for key, value in strange.state_dict().items())
    save_model(neuron, tmp_path / "weights.safetensors")
    with pytest.raises(RuntimeError, match=name):
        load_model(strange, tmp_path / "weights.safetensors")
    same = nn.Sequential(make())
    load_model(same, tmp_path / "weights.safetensors")
    x = torch.randn(2, 4, 6)
    torch.testing.assert_close(same(x)[0], neuron(x)[0], rtol=0, atol=0)


def test_a_neuron_of_another_kind_is_refused():
    plain, branched = ELM(6, 5), BranchELM(6, 5, d_tree=6, d_brch=1)
    with pytest.raises(RuntimeError, match="kind is 'elm' in the file"):
        branched.load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match="not the settings of a neuron"):
        plain.load_state_dict(plain.state_dict() | {KEY: torch.tensor([1, 2, 3], dtype=torch.uint8)})


@pytest.mark.parametrize("make", [elm, branch, lambda: TwoTower(6, encoder={"kind": "elm"}, d_latent=4)])
def test_files_without_settings_load_with_a_warning_unless_the_loader_vouches_for_them(make):
    module = make()
    old = {name: value for name, value in module.state_dict().items() if not name.endswith(KEY)}
    assert len(old) == len(module.state_dict()) - 1
    with pytest.warns(UserWarning, match="no hyper-parameters"):
        assert not any(make().load_state_dict(old, strict=True))
    assert not any(make().load_state_dict(with_settings(old, module), strict=True))  # warnings are errors here


# ---- defaults --------------------------------------------------------------------------------------------------------


def _largest(make, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        return float(make()(torch.zeros(1, 1000, 32))[0].abs().max())


def test_on_zero_input_the_memory_stays_small():
    at_rest = [_largest(lambda: ELM.for_sequences(32, 64, 1000, batch_first=True), seed) for seed in range(8)]
    assert max(at_rest) < 2
    plain = [_largest(lambda: ELM(32, 64, batch_first=True), seed) for seed in range(9)]
    assert sorted(plain)[4] < 2 < 9 < _largest(lambda: ELM(32, 64, lambda_=10, batch_first=True), 0)


def test_the_recipe_for_sequences_spans_the_length_and_takes_other_options():
    neuron = ELM.for_sequences(3, 8, 200, d_o=2, lambda_=4.0)
    assert type(neuron) is ELM and neuron.lambda_ == 4.0 and neuron.d_o == 2
    torch.testing.assert_close(neuron.tau_m, torch.linspace(1, 200, 8), rtol=1e-4, atol=1e-3)
    assert (neuron.w_s == 1).all() and float(neuron.tau_s) == pytest.approx(0.2)
    assert type(BranchELM.for_sequences(6, 8, 200, d_tree=3, d_brch=2)) is BranchELM
    assert ELM(3).lambda_ == 5
    with pytest.raises(ValueError, match="length=0"):
        ELM.for_sequences(3, 8, 0)


@pytest.mark.parametrize("kind", ["elm", "branch_elm"])
def test_an_experiment_that_leaves_lambda_out_means_that_of_neuronio(kind):
    assert build({"kind": kind}, input_size=9, d_o=2).lambda_ == 10
    assert build({"kind": kind, "lambda_": 4.0}, input_size=9, d_o=2).lambda_ == 4


def test_an_encoder_that_leaves_lambda_out_means_the_same():
    assert build({"kind": "two_tower", "encoder": {"kind": "elm"}}, input_size=9, d_o=2).encoder.lambda_ == 10
