"""The data of the worked examples, and their training loop."""

import torch
from torch import nn

from elm_lib.pipeline.examples import BANDS, adding_problem, fit, shuffled, spoken_words


def test_the_answer_is_the_sum_of_two_marked_numbers():
    x, y = adding_problem(7, 20, seed=1)
    assert x.shape == (7, 20, 2) and torch.equal(x, adding_problem(7, 20, seed=1)[0])
    marks = x[..., 1]
    assert (marks[:, :10].sum(1) == 1).all() and (marks[:, 10:].sum(1) == 1).all()
    torch.testing.assert_close(y, (x[..., 0] * marks).sum(1))


def test_words_have_lengths_of_their_own_and_are_the_same_again():
    words, labels = spoken_words([3, 7], [0, 4], seed=2)
    again, _ = spoken_words([3, 7], [0, 4], seed=2)
    assert labels.tolist() == [3, 7, 3, 7] and len({len(word) for word in words}) > 1
    assert all(word.shape[1] == BANDS and bool(word.isfinite().all()) for word in words)
    assert all(map(torch.equal, words, again))


def test_the_loop_trains():
    torch.manual_seed(0)
    model, rows = nn.Linear(3, 1), shuffled(50, 10)
    x = torch.randn(50, 3)
    y = x @ torch.tensor([[1.0], [2.0], [-1.0]])

    def loss(step):
        k = next(rows)
        return (model(x[k]) - y[k]).square().mean()

    losses = fit(model, loss, 200, lr=0.1)
    assert len(losses) == 200 and losses[-1] < 1e-2 * losses[0]
