"""Making, moving and joining sparse inputs."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from elm_lib import ELM, Spikes


def test_from_dense_and_back():
    x = torch.where(torch.rand(3, 5, 4) < 0.3, torch.randn(3, 5, 4), 0.0).double()
    x[1, 2, 3] = torch.nan
    spikes = Spikes.from_dense(x)
    assert spikes.check(torch.float64) is spikes
    torch.testing.assert_close(spikes.dense(), x, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(Spikes.from_dense(x.transpose(0, 1)).dense(), x.transpose(0, 1), equal_nan=True)
    assert Spikes.from_dense(x[:0]).dense().shape == (0, 5, 4)
    for wrong in (x[0], x.long(), x.numpy()):
        with pytest.raises(ValueError, match=r"floating-point tensor \(B, T, C\)"):
            Spikes.from_dense(wrong)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32, np.uint64, torch.int16, torch.int64, list])
def test_events_in_any_order_and_of_any_integer_type_are_counted(kind):
    rng = np.random.default_rng(0)
    places = [rng.integers(size, size=500) for size in (3, 5, 4)]
    expected = np.zeros((3, 5, 4), np.float32)
    np.add.at(expected, tuple(places), 1)  # as tonic's ToFrame does
    given = [
        torch.from_numpy(p).to(kind)
        if isinstance(kind, torch.dtype)
        else p.tolist()
        if kind is list
        else p.astype(kind)
        for p in places
    ]
    spikes = Spikes.from_events(*given, (3, 5, 4))
    assert spikes.check(torch.float32) is spikes
    assert np.array_equal(spikes.dense().numpy(), expected)
    value = rng.normal(size=500)
    np.add.at(expected := np.zeros((3, 5, 4)), tuple(places), value)
    spikes = Spikes.from_events(*given, (3, 5, 4), value)
    np.testing.assert_allclose(spikes.dense().numpy(), expected, atol=1e-12)
    one = Spikes.from_events(0, *(p[places[0] == 1] for p in places[1:]), (1, 5, 4))  # one sample: its number alone
    assert one.value.dtype == torch.float32 and one.dense().sum() == (places[0] == 1).sum()


def test_fields_of_a_structured_array_are_events():
    events = np.zeros(4, [("t", ">i8"), ("x", np.int16), ("p", np.int8), ("v", np.float32)])
    events["t"], events["x"], events["v"] = [3, 0, 3, 1], [1, 2, 1, 0], [1, 2, 3, 4]
    spikes = Spikes.from_events(events["p"], events["t"], events["x"], (1, 4, 3), events["v"])
    assert spikes.dense().tolist() == [[[0, 0, 2], [4, 0, 0], [0, 0, 0], [0, 4, 0]]]


def test_events_equal_the_frames_of_tonic():
    reason = "tonic is not installed: pip install tonic"
    functional = pytest.importorskip("tonic.functional", reason=reason)
    rng = np.random.default_rng(1)
    events = np.zeros(400, [("t", np.int64), ("x", np.int16), ("p", np.int8)])
    events["t"], events["x"] = np.sort(rng.integers(1000, size=400)), rng.integers(7, size=400)
    frames = functional.to_frame_numpy(events, (7, 1, 1), time_window=100, start_time=0, end_time=1000)
    shuffled = rng.permutation(events)
    spikes = Spikes.from_events(0, shuffled["t"] // 100, shuffled["x"], (1, 10, 7))
    assert np.array_equal(spikes.dense().numpy()[0], frames[:, 0])


@pytest.mark.parametrize(
    ("places", "value", "kind", "words"),
    [
        (([0], [5], [0]), None, ValueError, r"step from 5 to 5 is outside 0\.\.4"),
        (([0], [0], [-1]), None, ValueError, "channel from -1"),
        (([0.5], [0], [0]), None, TypeError, "sample is torch.float32: give whole numbers"),
        (([0], [0], [0]), [1.0, 2.0], ValueError, r"value of shape \(2,\)"),
    ],
)
def test_events_that_do_not_fit_are_refused(places, value, kind, words):
    with pytest.raises(kind, match=words):
        Spikes.from_events(*places, (2, 5, 4), value)
    with pytest.raises(ValueError, match=r"must be \(B, T, C\)"):
        Spikes.from_events([0], [0], [0], (5, 4))


def some(batch, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    return Spikes.from_dense((torch.rand(batch, steps, 4, generator=generator) < 0.3).float())


def test_collate_joins_samples_and_pads_with_silence():
    samples = [some(1, 5, 0), some(2, 3, 1), some(1, 1, 2)]
    batch = Spikes.collate(samples)
    assert batch.shape == (4, 5, 4) and batch.check(torch.float32) is batch
    expected = torch.cat([torch.nn.functional.pad(one.dense(), (0, 0, 0, 5 - one.shape[1])) for one in samples])
    assert torch.equal(batch.dense(), expected)
    assert torch.equal(batch.take([2, 0], 3).dense(), expected[[2, 0], :3])
    with pytest.raises(ValueError, match=r"one number of channels, got \[3, 4\]"):
        Spikes.collate([some(1, 5, 0), Spikes.from_dense(torch.ones(1, 1, 3))])


def test_a_data_loader_collates_spikes_beside_labels():
    data = [(some(1, 2 + n, n), n) for n in range(6)]
    spikes, labels = next(iter(DataLoader(data, batch_size=6)))
    assert labels.tolist() == list(range(6))
    assert torch.equal(spikes.dense(), Spikes.collate([one for one, _ in data]).dense())
    y, _ = ELM(4, 3)(spikes, lengths=labels + 2)
    assert y.shape == (7, 6, 3)


def test_to_moves_and_converts_and_repr_says_what_it_is():
    spikes = some(2, 5, 0)
    there = spikes.to("meta", torch.float64)
    assert {part.device.type for part in there[:3]} == {"meta"} and there.value.dtype == torch.float64
    assert there.channel.dtype == torch.int64 and spikes.to(torch.float64).channel is spikes.channel
    with pytest.raises(ValueError, match="real floating point"):
        spikes.to(torch.int64)
    text = repr(Spikes.from_dense(torch.ones(2, 5, 4)))
    assert text == "Spikes(2 samples, 5 steps, 4 channels: 40 spikes (100.00%), float32 on cpu)"
    assert "0 spikes, float32" in repr(Spikes.from_dense(torch.ones(0, 5, 4)))
    assert torch.equal(pickle.loads(pickle.dumps(spikes)).dense(), spikes.dense())
