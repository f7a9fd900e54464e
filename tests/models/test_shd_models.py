"""The SHD task, the spiking network and recurrent dropout."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from elm_lib.datasets.shd.schema import write_recordings
from elm_lib.datasets.shd.task import Task
from elm_lib.experiments.evaluate import has_samples
from elm_lib.models import snn
from elm_lib.models.snn import RESET, SHARPNESS, SNN, _Layer
from elm_lib.models.variational_lstm import VariationalLSTM
from elm_lib.support.errors import ConfigError
from elm_lib.training.run import Run

TRAIN = dict(optimizer="adamax", lr=5e-3, batch_size=4, epochs=2, batches_per_epoch=150, clip_grad_norm=None)
OPTIONS = {"bin_ms": 100, "adding": False, "dropout": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twenty words, each a burst in channels and at a time of its own: easy, so that what trains must learn them."""
    folder, rng = tmp_path_factory.mktemp("shd"), np.random.default_rng(0)
    for split, n, speakers in (("train", 200, 3), ("test", 80, 4)):
        label = np.arange(n) % 20
        spikes = [
            (np.sort(0.04 * word + 0.05 * rng.random(60)), (35 * word + rng.integers(35, size=60)).astype(np.int64))
            for word in label
        ]
        write_recordings(
            folder / f"{split}.h5",
            spikes,
            label,
            np.arange(n) // 20 % speakers,
            words=[str(k) for k in range(20)],
            genders=["f"] * 4,
            source="generated",
            provenance={},
        )
    (folder / "manifest.json").write_text(json.dumps({"pairs": {"valid": 20, "test": 24}}))
    return folder


def _run(folder, out, model, **options):
    return Run("e", "shd", model, TRAIN, 3, str(folder), str(out), OPTIONS | options)


MODELS = {
    "elm": {
        "kind": "elm",
        "d_m": 20,
        "lambda_": 5.0,
        "tau_m_range": [1, 150],
        "tau_m_bounds": [0, 1000],
        "delta_t": 100.0,
    },
    "variational_lstm": {"kind": "variational_lstm", "hidden_size": 20, "recurrent_dropout": 0.3},
    "snn": {"kind": "snn", "n": 60, "n_synapse": 20, "delta_t": 100.0},
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_killed_run_ends_with_the_same_weights_though_it_draws_masks(folder, tmp_path, kind, killed_as_whole):
    whole, killed = (_run(folder, tmp_path / name, MODELS[kind]) for name in ("whole", "killed"))
    scores = killed_as_whole(whole, killed, 180)
    assert 0 <= scores["test_accuracy"] <= 1 and scores["test_accuracy_unseen_speakers"] >= 0
    if kind == "elm":  # learned: chance is 0.05
        assert scores["test_accuracy"] > 0.3 and scores["valid_accuracy"] > 0.3


def test_sums_of_two_digits_and_their_sizes(folder):
    task = Task(folder, TRAIN["batch_size"], 0, **(OPTIONS | {"adding": True}))
    assert Task.sizes(100, True, 0.5) == {"input_size": 700, "d_o": 19} and Task.steps(100, True, 0.5) == 20
    batch = task.batch(0, 0)
    assert batch.x.shape == (4, 20, 700) and int(batch.label.max()) <= 18
    model = SNN(700, 60, 19, n_synapse=20, delta_t=100.0, batch_first=True)
    scores = task.test(model)
    assert {"train_accuracy", "valid_accuracy", "test_accuracy", "test_accuracy_dropped"} <= set(scores)
    for wrong in ({"bin_ms": 0}, {"dropout": 1.0}, {"adding": 1}):
        with pytest.raises(ConfigError, match="task"):
            Task.sizes(**(OPTIONS | wrong))


def test_sums_are_not_evaluated_on_a_part_of_the_words(folder):
    for adding, words, here in ((True, 80, True), (True, 81, False), (False, 81, True), (True, None, True)):
        options = OPTIONS | {"adding": adding}
        task = Task(folder, TRAIN["batch_size"], 0, **options)
        one = SimpleNamespace(options=options, recipe={"test": {"words": words} if words else {}})
        assert has_samples(one, task) == here


def test_accuracy_is_the_share_of_right_answers(folder):
    class Oracle(nn.Module):
        """Reads the word off the mean channel: right by construction, except that it calls every 7 a 0."""

        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            dense = x.dense().sum(1)
            word = ((dense * torch.arange(700)).sum(1) / dense.sum(1) / 35).floor().long().clamp(0, 19)
            return nn.functional.one_hot(torch.where(word == 7, 0, word), 20).float()[:, None], None

    task = Task(folder, TRAIN["batch_size"], 0, **(OPTIONS | {"dropout": 0.0}))
    scores, kept = task.evaluate(Oracle())
    assert math.isclose(scores["test_accuracy"], 0.95) and math.isclose(scores["test_accuracy_dropped"], 0.95)
    assert kept["right"].mean() == pytest.approx(0.95)
    assert kept["valid_right"].mean() == pytest.approx(scores["valid_accuracy"])
    assert (kept["seen"] ^ kept["unseen"]).all() and kept["unseen"].sum() == 20  # one speaker of four, 80 words
    assert set(task.evaluate(Oracle(), splits=("test",))[1]) == {"right", "unseen", "seen"}


@pytest.mark.parametrize(
    ("reading", "kappa_out"),
    [
        ({}, math.exp(-1 / 20)),  # whatever delta_t is
        ({"tau_out_steps": 5.0}, math.exp(-1 / 5)),
        ({"tau_out_steps": None, "tau_out_ms": 20.0}, math.exp(-2 / 20)),
    ],
)
def test_snn_follows_its_equations_neuron_by_neuron(reading, kappa_out):
    torch.manual_seed(1)
    snn, x = (
        SNN(30, 12, 3, n_synapse=8, w_s=3.0, delta_t=2.0, batch_first=True, **reading).double(),
        torch.rand(2, 15, 30).double() < 0.3,
    )
    x = x.double()
    y, (v_end, z_end, _) = snn(x)
    w_s, kappa = snn.proto_w_s.relu(), torch.exp(-2.0 / snn.tau_m)
    for b in range(2):
        v, z, low = torch.zeros(12), torch.zeros(12), torch.zeros(3)
        for t in range(15):
            new = torch.zeros(12)
            for n in range(12):
                layer, before = (range(0, 9), 30) if n < 9 else (range(9, 12), 9)
                current = 0.0
                for weight, source in zip(w_s[n].tolist(), snn.source[n].tolist(), strict=True):
                    if source >= before:  # own layer, one step ago
                        k = source - before
                        current += weight * float(z[layer[k]]) * (-1 if k < round(0.2 * len(layer)) else 1)
                    elif n < 9:
                        current += weight * float(x[b, t, source])
                    else:  # recurrent layer, now
                        current += weight * float(new[source]) * (-1 if source < round(0.2 * 9) else 1)
                v[n] = kappa[n] * v[n] - RESET * z[n] + current
                new[n] = v[n] > 1
            z = new
            low = kappa_out * low + z[9:]
            torch.testing.assert_close(y[b, t].float(), low.float(), rtol=1e-5, atol=1e-5)
        assert torch.equal(z_end[b].float(), z) and torch.allclose(v_end[b].float(), v.float(), atol=1e-4)
    assert y.max() > 0, "no output neuron fired: the test saw nothing"


def test_snn_learns_every_weight_it_uses_and_counts_as_published():
    snn = SNN(700, 500, 20, batch_first=True)
    assert sum(p.numel() for p in snn.parameters()) == 50_500  # "51K", Figure 5
    own = (snn.source[:480] >= 700).float().mean()
    assert abs(float(own) - 0.1) < 0.01
    x = (torch.rand(4, 40, 700) < 0.05).float()
    y, _ = snn(x)
    (y[:, -1].sum() + snn.penalty).backward()
    assert 0 < snn.penalty.item() < 0.01 and float((snn.proto_w_s.grad[:480] != 0).float().mean()) > 0.5
    with pytest.raises(ValueError, match="n=3"):
        SNN(700, 3, 20)
    for both in ({"tau_out_ms": 20.0}, {"tau_out_steps": None}, {"tau_out_steps": 0.0}):
        with pytest.raises(ValueError, match="tau_out_steps=.*give one of them"):
            SNN(700, 500, 20, **both)


@pytest.mark.parametrize(
    ("reading", "left"), [({}, 0.05), ({"tau_out_steps": None, "tau_out_ms": 20.0}, 1e-9)], ids=["steps", "ms"]
)
def test_what_the_last_output_keeps_of_a_word_that_ends_long_before(reading, left):
    """Bins of 20 ms, input in the first 0.3 s of one second: what is left after 35 more steps."""
    torch.manual_seed(0)
    snn = SNN(60, 30, 5, n_synapse=10, w_s=1.5, delta_t=20.0, batch_first=True, **reading)
    x = torch.zeros(4, 50, 60)
    x[:, :15] = (torch.rand(4, 15, 60) < 0.3).float()
    y, _ = snn(x)
    kept = (y[:, -1].sum() / y[:, 14].sum()).item()
    assert y[:, 14].sum() > 0 and (kept > left if not reading else kept < left)
    y[:, -1].sum().backward()
    gradient = float(snn.proto_w_s.grad.abs().max())
    assert gradient > 1e-3 if not reading else gradient < 1e-9


def test_the_surrogate_gradient_is_1_at_the_threshold_as_documented():
    v = torch.tensor([[[1.0]], [[1.1]], [[0.5]]])  # T = 3, currents that set v alone: kappa is 0
    current = v.clone().requires_grad_()
    z, _ = _Layer.apply(current, torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1))
    z[0].sum().backward()
    assert current.grad[0].item() == 1.0
    current.grad = None
    z, _ = _Layer.apply(current, torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1))
    z[1].sum().backward()
    assert current.grad[1].item() == pytest.approx(1 / (1 + 10 * 0.1) ** 2)
    assert "u / (1 + 10 |u|)" in " ".join(_Layer.__doc__.split()) and SHARPNESS == 10


@pytest.mark.parametrize("loops", [snn.spiking, None], ids=["compiled", "torch"])
@pytest.mark.parametrize("share", [1.0, 0.4], ids=["dense", "sparse"])
def test_gradients_of_the_spiking_layer_are_those_of_its_equations_with_the_surrogate(loops, share, monkeypatch):
    monkeypatch.setattr(snn, "spiking", loops)

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return (v > 1).to(v.dtype)

        @staticmethod
        def backward(ctx, grad):
            return grad / (1 + SHARPNESS * (ctx.saved_tensors[0] - 1).abs()) ** 2

    def step_by_step(current, w, kappa, v, z):
        z_all = []
        for current_t in current:
            v = kappa * v - RESET * z + current_t + z @ w
            z = Spike.apply(v)
            z_all.append(z)
        return torch.stack(z_all), v

    torch.manual_seed(3)
    current, w, kappa, v_0 = (torch.randn(*shape, dtype=torch.double) for shape in ((9, 2, 5), (5, 5), (5,), (2, 5)))
    synapse = torch.rand(5, 5) < share
    inputs = [a.requires_grad_() for a in (current, w * synapse, kappa.abs() / 3, v_0)]
    z_0, weigh = (v_0 > 0).double().requires_grad_(), torch.randn(9, 2, 5, dtype=torch.double)
    results = []
    for layer in (step_by_step, _Layer.apply):
        z_all, v_end = layer(*inputs, z_0)
        results.append(
            [z_all, v_end, *torch.autograd.grad((z_all * weigh).sum() + v_end.square().sum(), [*inputs, z_0])]
        )
    assert 5 < results[0][0].sum() < 85
    for found in results:
        found[3] = found[3] * synapse  # where there is no synapse, a gradient says nothing
    for expected, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("batch_first", [True, False])
def test_gradients_of_the_masked_lstm_are_those_of_its_cell(batch_first):
    torch.manual_seed(4)
    model = VariationalLSTM(6, 5, 2, recurrent_dropout=0.4, batch_first=batch_first).double()
    x = torch.randn(3, 7, 6, dtype=torch.double, requires_grad=True)
    state = tuple(torch.randn(1, 3, 5, dtype=torch.double, requires_grad=True) for _ in range(2))
    weigh, cell = torch.randn(3, 7, 2, dtype=torch.double), model.cell
    model.masks.reseed(5)
    mask = model.masks.draw((3, 5), x)
    (h, c), outputs = (s[0] for s in state), []
    for x_t in x.unbind(1):
        gates = x_t @ cell.weight_ih_l0.T + cell.bias_ih_l0 + (h * mask) @ cell.weight_hh_l0.T
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(model.w_y(h))
    model.masks.reseed(5)
    y, (h_end, c_end) = model(x if batch_first else x.transpose(0, 1), state)
    y = y if batch_first else y.transpose(0, 1)
    inputs, results = [x, *state, *(p for p in model.parameters() if p.requires_grad)], []
    for out, end in ((torch.stack(outputs, 1), (h, c)), (y, (h_end[0], c_end[0]))):
        loss = (out * weigh).sum() + end[0].square().sum() + end[1].square().sum()
        results.append([out, *torch.autograd.grad(loss, inputs)])
    for expected, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(model(x if batch_first else x.transpose(0, 1))[0].sum(), x, create_graph=True)


def test_recurrent_dropout_masks_in_training_alone():
    torch.manual_seed(0)
    model, x = VariationalLSTM(6, 5, 2, recurrent_dropout=0.5, batch_first=True), torch.randn(3, 9, 6)
    plain = model.eval()(x)[0]
    model.train()
    model.masks.reseed(1, 2)
    first = model(x)[0]
    assert not torch.allclose(first, plain)
    model.masks.reseed(1, 2)
    assert torch.equal(model(x)[0], first)
    model.masks.p = 0.0
    torch.testing.assert_close(model(x)[0], plain)  # the loop is the cell
    with pytest.raises(ValueError, match="dropout=1.0"):
        VariationalLSTM(6, 5, recurrent_dropout=1.0)


def test_a_task_tells_the_neuron_its_bin_size():
    assert Task.arguments(4, False, 0.5) == {"delta_t": 4.0}
    run = replace(_run("d", "f", MODELS["elm"]), seed=1)
    assert run.options["bin_ms"] == 100
