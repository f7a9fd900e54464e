"""Sequences of different lengths, padded and packed, against runs of one at a time, with nn.LSTM as control."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from elm_lib import ELM, BranchELM, Spikes
from elm_lib.interface import sequences
from elm_lib.interface.inputs import State

LENGTHS = [3, 70, 1, 70, 20, 66, 5, 9, 70, 2]


def _lstm(**options):
    return nn.LSTM(7, 5, **options)


MAKES = {
    "elm": lambda **k: ELM(7, 5, **k),
    "projected first": lambda **k: ELM(7, 5, d_o=2, d_mlp=3, **k),
    "tau_s a synapse": lambda **k: ELM(7, 5, d_o=2, tau_s=torch.linspace(1, 9, 7), **k),
    "in stretches": lambda **k: ELM(7, 5, d_o=2, d_mlp=3, checkpoint_steps=16, **k),
    "branch": lambda **k: BranchELM(7, 5, d_tree=3, d_brch=4, **k),
    "branch, projected first": lambda **k: BranchELM(7, 5, d_o=2, d_tree=3, d_brch=4, d_mlp=2, checkpoint_steps=7, **k),
    "reference": lambda **k: ELM(7, 5, d_o=2, engine="reference", **k),
    "lstm": _lstm,
}


def _state(module, batch):
    width = 5 if isinstance(module, nn.LSTM) else module.n_trace
    parts = [torch.randn(batch, n, dtype=torch.float64, requires_grad=True) for n in (width, 5)]
    return parts, [part.unsqueeze(0) for part in parts] if isinstance(module, nn.LSTM) else State(*parts)


def _one_at_a_time(module, sequences_, parts):
    """y of each sequence (T_i, .), and the parts of the state (B, .), of runs without a batch."""
    outputs, states = [], []
    for n, x in enumerate(sequences_):
        own = [part[n] for part in parts]
        y, state = module(x, [part.unsqueeze(0) for part in own] if isinstance(module, nn.LSTM) else own)
        outputs.append(y)
        states.append([part.reshape(-1) for part in state])
    return outputs, [torch.stack(part) for part in zip(*states, strict=True)]


def _gradients(outputs, state, leaves):
    total = sum(y.sin().sum() for y in outputs) + sum((k + 2) * part.cos().sum() for k, part in enumerate(state))
    return torch.autograd.grad(total, leaves)


def _leaves(module, x, parts):
    return [*x, *parts, *(p for p in module.parameters() if p.requires_grad)]


@pytest.mark.parametrize("sorted_already", [False, True])
@pytest.mark.parametrize("make", MAKES)
def test_packed_sequences_equal_runs_of_one_at_a_time(make, sorted_already, monkeypatch):
    monkeypatch.setattr(sequences, "OVERHEAD", 1)  # as many groups as can pay
    module, lengths = (
        MAKES[make](batch_first=True).double(),
        sorted(LENGTHS, reverse=True) if sorted_already else LENGTHS,
    )
    x = [torch.randn(n, 7, dtype=torch.float64, requires_grad=True) for n in lengths]
    parts, state = _state(module, len(x))
    packed = pack_sequence(x, enforce_sorted=sorted_already)
    y, after = module(packed, state)
    assert isinstance(y, PackedSequence) and torch.equal(y.batch_sizes, packed.batch_sizes)
    rows, known = pad_packed_sequence(y, batch_first=True)
    assert known.tolist() == lengths
    ours = [row[:n] for row, n in zip(rows, lengths)]
    after = [part.reshape(len(x), -1) for part in after]
    outputs, states = _one_at_a_time(module, x, parts)
    for a, b in zip([*ours, *after], [*outputs, *states], strict=True):
        torch.testing.assert_close(a, b)
    leaves = _leaves(module, x, parts)
    for a, b in zip(_gradients(ours, after, leaves), _gradients(outputs, states, leaves), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("make", [name for name in MAKES if name != "lstm"])
def test_lengths_of_a_padded_batch_equal_runs_of_one_at_a_time(make, batch_first, monkeypatch):
    monkeypatch.setattr(sequences, "OVERHEAD", 1)
    module = MAKES[make](batch_first=batch_first).double()
    x = [torch.randn(n, 7, dtype=torch.float64, requires_grad=True) for n in LENGTHS]
    padded = nn.utils.rnn.pad_sequence(x, batch_first=True, padding_value=torch.nan)  # what pads is not read
    parts, state = _state(module, len(x))
    y, after = module(padded if batch_first else padded.transpose(0, 1), state, lengths=LENGTHS)
    last = module.last(y, LENGTHS)
    y = y if batch_first else y.transpose(0, 1)
    ours = [row[:n] for row, n in zip(y, LENGTHS)]
    assert not any(row[n:].any() for row, n in zip(y, LENGTHS))
    outputs, states = _one_at_a_time(module, x, parts)
    for a, b in zip([*ours, *after, last], [*outputs, *states, torch.stack([one[-1] for one in outputs])], strict=True):
        torch.testing.assert_close(a, b)
    leaves = _leaves(module, x, parts)
    for a, b in zip(_gradients(ours, after, leaves), _gradients(outputs, states, leaves), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("make", ["elm", "projected first", "tau_s a synapse", "branch", "branch, projected first"])
def test_spikes_take_lengths(make):
    module = MAKES[make]().double()
    dense = (torch.rand(10, 70, 7, dtype=torch.float64) < 0.3).double()
    b, t, c = dense.nonzero(as_tuple=True)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(b * 70 + t, minlength=700).cumsum(0)])
    y, state = module(Spikes(row_ptr, c, dense[b, t, c], (10, 70, 7)), lengths=torch.tensor(LENGTHS))
    expected = module(dense.transpose(0, 1), lengths=torch.tensor(LENGTHS))
    for ours, theirs in zip([y, *state], [expected[0], *expected[1]], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_last_output_at_each_own_end():
    neuron, x = ELM(7, 5, batch_first=True), torch.randn(4, 9, 7)
    y, state = neuron(x)
    assert torch.equal(neuron.last(y), y[:, -1])
    y, state = neuron(x, lengths=[3, 9, 1, 4])
    assert torch.equal(neuron.last(y, [3, 9, 1, 4]), state.m)
    packed, state = neuron(pack_padded_sequence(x, [3, 9, 1, 4], batch_first=True, enforce_sorted=False))
    assert torch.equal(neuron.last(packed), state.m)


def test_wrong_lengths_are_named():
    neuron, x = ELM(7, 5, batch_first=True), torch.randn(4, 9, 7)
    for lengths, kind, words in (
        ([3, 9, 1], ValueError, r"one a sample, \(4,\)"),
        ([3, 10, 1, 1], ValueError, r"must be in 1\.\.9"),
        ([0, 9, 1, 1], ValueError, r"must be in 1\.\.9"),
        ([1.0, 9, 1, 1], TypeError, "whole numbers"),
    ):
        with pytest.raises(kind, match=words):
            neuron(x, lengths=lengths)
    with pytest.raises(ValueError, match="x has none"):
        neuron(x[0], lengths=[3])
    packed = pack_padded_sequence(x, [9] * 4, batch_first=True)
    with pytest.raises(ValueError, match="knows its lengths"):
        neuron(packed, lengths=[9] * 4)
    with pytest.raises(ValueError, match="state has shapes"):
        neuron(packed, neuron.zero_state(x[:3]))
    with pytest.raises(ValueError, match=r"x\.data is torch\.float64"):
        neuron(packed.to(torch.float64))


def test_groups_hold_every_sample_once_and_cost_less_than_one_batch():
    assert sequences.groups([]) == [] and sequences.groups([5]) == [(0, 1)]
    for falling in ([500] * 30, [1000 * 0.9**k + 1 for k in range(100)], [4000] + [10] * 3000):
        parts = sequences.groups([int(n) for n in falling])
        assert [place for part in parts for place in range(*part)] == list(range(len(falling)))
        cost = sum(sequences.OVERHEAD + falling[a] * 8 * -(-(b - a) // 8) for a, b in parts)
        assert cost <= sequences.OVERHEAD + falling[0] * 8 * -(-len(falling) // 8)
    assert len(sequences.groups([500] * 64)) == 1
