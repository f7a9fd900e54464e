"""The Long Range Arena task, the Chrono-LSTM, S5 and the two towers."""

import numpy as np
import pytest
import torch
from lra_sets import write
from torch import nn

from elm_lib.datasets.lra.schema import FORMS, SplitWriter
from elm_lib.datasets.lra.task import Task, scores
from elm_lib.models.chrono_lstm import ChronoLSTM
from elm_lib.models.cost import parameters
from elm_lib.models.registry import build
from elm_lib.models.s5 import S5, SSM, hippo_n
from elm_lib.models.two_tower import TwoTower
from elm_lib.neuron import ELM
from elm_lib.support.errors import ConfigError
from elm_lib.training.run import Run

TRAIN = dict(
    optimizer="adam", lr=1e-2, batch_size=12, epochs=2, batches_per_epoch=70, clip_grad_norm=None, accumulate=3
)
ELM_ENTRY = {"kind": "elm", "d_m": 12, "lambda_": 5.0, "tau_m_range": [1, 20], "tau_m_bounds": [1, 20]}
MODELS = {
    "text": ELM_ENTRY,
    "listops": {"kind": "chrono_lstm", "hidden_size": 12, "tau_range": [1, 20]},
    "retrieval": {"kind": "two_tower", "d_latent": 6, "encoder": ELM_ENTRY},
    "pathfinder": {"kind": "s5", "n_layers": 1, "d_model": 8, "d_state": 8, "n_blocks": 2},
}


def _easy(folder, task):
    """Sequences of one symbol, the class's: what trains must learn them."""
    form, rng = FORMS[task], np.random.default_rng(0)
    for split, n in (("train", 120), ("valid", 40), ("test", 40)):
        labels, s = np.arange(n) % form.n_classes, form.n_sequences
        lengths = rng.integers(3, 12, n * s) if form.has_class_token else np.full(n, 16)
        symbols = np.stack([labels, 0 * labels], 1).ravel() if s == 2 else labels
        with SplitWriter(folder / task / f"{split}.h5", task, source="generated", provenance={}) as writer:
            writer.add(np.repeat(symbols + (4 if form.has_class_token else 0), lengths), lengths, labels)


@pytest.mark.parametrize("task", MODELS)
def test_a_killed_run_ends_with_the_same_weights_though_it_drops_and_accumulates(tmp_path, task, killed_as_whole):
    _easy(tmp_path, task)
    options = {"name": task, "dropout": 0.1}
    whole, killed = (
        Run("e", "lra", MODELS[task], TRAIN, 3, str(tmp_path), str(tmp_path / name), options) for name in ("a", "b")
    )
    found = killed_as_whole(whole, killed, 100)
    assert found["test_accuracy"] > 0.9 and found["train_accuracy"] > 0.9 and found["valid_accuracy"] > 0.9


@pytest.mark.parametrize("task", ["text", "retrieval"])
def test_pieces_have_the_gradient_of_the_batch_and_padding_is_not_read(tmp_path, task):
    write(tmp_path, task, (40, 6, 6))
    made = Task(tmp_path, TRAIN["batch_size"], 0, name=task, dropout=0.3)
    torch.manual_seed(0)
    model = build(MODELS[task], **Task.sizes(task, 0.3)).double()
    batch = made.batch(0, 0)

    def gradient(parts):
        model.zero_grad()
        for piece, share in parts:
            (share * made.loss(model, piece)).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    whole = gradient([(batch, 1.0)])
    assert batch.value.unique().tolist() == pytest.approx([0, 1 / 0.7])
    for n in (3, 12):  # pieces are cut to their longest sequence, so padding differs
        for ours, expected in zip(gradient(batch.pieces(n)), whole, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    alone = [scores(model, part) for part, _ in batch.pieces(12)]
    torch.testing.assert_close(torch.cat(alone), scores(model, batch))
    assert torch.equal(made.batch(0, 0).value, batch.value) and not torch.equal(made.batch(0, 1).value, batch.value)


def test_accuracy_is_the_share_of_right_answers_after_each_sequences_own_last_symbol(tmp_path):
    class Oracle(nn.Module):
        """Right after the class token; wrong after any other step."""

        def __init__(self):
            super().__init__()
            self.answers, self.at = nn.Parameter(torch.zeros(())), 0

        def forward(self, x):
            is_last = x.dense()[..., -1:]
            return torch.cat([is_last, 1 - is_last], -1), None  # class 0 there, 1 elsewhere

    content = write(tmp_path, "text", (20, 30, 30))
    made = Task(tmp_path, TRAIN["batch_size"], 0, name="text", dropout=0.0)
    assert made.test(Oracle())["test_accuracy"] == pytest.approx(float((content["test"][1] == 0).mean()))
    for wrong in ({"name": "cifar", "dropout": 0.0}, {"name": "text", "dropout": 1.0}):
        with pytest.raises(ConfigError, match="task.name"):
            Task.sizes(**wrong)


def test_chrono_biases_spread_over_the_range():
    torch.manual_seed(0)
    model = ChronoLSTM(16, 2000, 2, tau_range=(1, 1000))
    b_i, b_f, b_g, _ = model.cell.bias_ih_l0.detach().chunk(4)
    tau = b_f.exp()
    assert torch.equal(b_i, -b_f) and 1 <= float(tau.min()) < 10 and 990 < float(tau.max()) <= 999
    assert abs(float(tau.mean()) - 500) < 30 and float(b_g.abs().max()) < 0.1
    with pytest.raises(ValueError, match="tau_range"):
        ChronoLSTM(16, 4, 2, tau_range=(5, 5))


def test_a_layer_of_s5_is_its_equations():
    torch.manual_seed(0)
    ssm, u = SSM(6, 8, 2).double(), torch.randn(3, 20, 6).double()
    lambda_, b, c = (torch.view_as_complex(p.detach()) for p in (ssm.lambda_, ssm.b, ssm.c))
    delta = ssm.log_delta.detach().exp()
    y = torch.zeros(3, 20, 6).double()
    for part, times in zip(c.chunk(2, 1), (range(20), reversed(range(20)))):
        h = torch.zeros(3, 4, dtype=b.dtype)
        for t in times:
            h = (
                torch.exp(lambda_ * delta) * h
                + u[:, t].to(b.dtype) @ ((torch.exp(lambda_ * delta) - 1) / lambda_)[:, None].mul(b).T
            )
            y[:, t] += 2 * (h @ part.T).real
    torch.testing.assert_close(ssm(u), y + ssm.d * u)


def test_s5_starts_from_hippo_and_counts_as_published():
    n = 8
    i = torch.arange(n).double()
    legs = -torch.tril((2 * i + 1).sqrt()[:, None] * (2 * i + 1).sqrt(), -1) - torch.diag(i + 1)
    normal = legs + (i + 0.5).sqrt()[:, None] * (i + 0.5).sqrt()
    w, v = hippo_n(n)
    torch.testing.assert_close((v @ torch.diag(w) @ v.mH).real, normal)
    ssm = SSM(4, 32, 2)
    assert bool((ssm.lambda_[:, 0] == -0.5).all()) and bool((ssm.lambda_[:, 1] > 0).all())
    published = {1: 186e3, 2: 371e3, 4: 742e3, 6: 1.1e6}
    for layers, count in published.items():
        assert parameters(S5(16, 2, n_layers=layers)) == pytest.approx(count, rel=0.015)
    y, _ = S5(16, 2, n_layers=2, d_model=8, d_state=8, n_blocks=1, batch_first=True)(torch.rand(3, 9, 16))
    assert y.shape == (3, 9, 2)
    with pytest.raises(ValueError, match="n_blocks"):
        S5(16, 2, d_state=30)


def test_two_towers_read_each_text_alone():
    torch.manual_seed(0)
    model = TwoTower(5, 2, encoder=ELM_ENTRY, d_latent=7, batch_first=True)
    x = torch.rand(8, 6, 5)  # four pairs
    y, _ = model(x)
    assert y.shape == (8, 6, 7)
    out = model.head(y[:, -1].view(2, 4, 7))
    assert out.shape == (4, 2)
    other = x.clone()
    other[6] = 0  # second text of pair 2
    changed = model.head(model(other)[0][:, -1].view(2, 4, 7))
    assert torch.equal(changed[[0, 1, 3]], out[[0, 1, 3]]) and not torch.allclose(changed[2], out[2])
    with pytest.raises(ValueError, match="encoder.kind='lstm'"):
        TwoTower(5, 2, encoder={"kind": "lstm"})


# Tables S5 and 1: published counts hold 4 d_m more than the equations name (see the tables' notes)
@pytest.mark.parametrize(("d_m", "published"), [(10, 822), (25, 3552)])
def test_pathfinder_elm_counts_follow_the_published_rule(d_m, published):
    assert parameters(ELM(16, d_m, d_o=2)) + 4 * d_m == published
