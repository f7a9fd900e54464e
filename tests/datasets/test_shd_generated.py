"""Speech and cochlea against what their equations say; generated files against interruptions and worker counts."""

import hashlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from elm_lib.datasets.shd import generated as digits
from elm_lib.datasets.shd.batches import ShdData
from elm_lib.datasets.shd.schema import open_recordings, validation_mask
from elm_lib.simulate.speech import cochlea, voices
from elm_lib.support.errors import DataError

SIZES = {"train": 6, "test": 2}


@pytest.fixture(scope="session")
def ear() -> cochlea.Cochlea:
    return cochlea.Cochlea(cochlea.transfer_table(cochlea.place(np.arange(cochlea.N_CHANNELS))))


def test_each_frequency_has_its_place_from_high_to_low():
    c = np.linspace(0, cochlea.LENGTH, 701)
    frequency = np.geomspace(100, 10_000, 25)
    best = c[np.abs(cochlea.membrane_transfer(frequency, c)).argmax(0)]
    assert (np.diff(best) < 0).all()
    # stiffness and mass cancel at the resonance; the wave peaks before it gets there
    resonance = np.log(cochlea.C0 / (cochlea.A + cochlea.MASS * (2 * np.pi * frequency) ** 2)) / cochlea.ALPHA
    assert (best < resonance).all()
    assert (resonance - best < 0.4).all()


@pytest.mark.parametrize("seconds", [0.5, 1.1])  # both lengths of the Fourier transform
def test_a_tone_moves_the_membrane_as_the_transfer_function_says(ear, seconds):
    frequency = 1000.0
    t = np.arange(int(seconds * cochlea.SOUND_RATE_HZ)) / cochlea.SOUND_RATE_HZ
    moved = ear.membrane(np.sin(2 * np.pi * frequency * t))
    middle = moved[:, int(0.2 * cochlea.RATE_HZ) : int(0.4 * cochlea.RATE_HZ)]
    expected = np.abs(cochlea.membrane_transfer(np.array([frequency]), cochlea.place(np.arange(700))))[:, 0]
    near = expected > 0.1 * expected.max()
    np.testing.assert_allclose(middle.std(1)[near] * np.sqrt(2), expected[near], rtol=0.01)
    assert abs(int(middle.std(1).argmax()) - int(expected.argmax())) <= 2


def test_a_hair_cell_rests_in_silence_adapts_to_a_tone_and_recovers():
    n = int(0.3 * cochlea.RATE_HZ)
    rest = cochlea.hair_cell(np.zeros(n))
    k = cochlea.G * cochlea.A_HAIR / (cochlea.A_HAIR + cochlea.B_HAIR)
    cleft = cochlea.Y * k / (cochlea.L * k + cochlea.Y * (cochlea.L + cochlea.R))
    np.testing.assert_allclose(rest, cochlea.H * cleft, rtol=1e-9)  # 65 spikes/s

    rate = cochlea.hair_cell(np.concatenate([np.full(n, 100.0), np.zeros(n)]))
    k = cochlea.G * 105 / (105 + cochlea.B_HAIR)
    steady = cochlea.H * cochlea.Y * k / (cochlea.L * k + cochlea.Y * (cochlea.L + cochlea.R))
    assert rate[:n].argmax() < 0.002 * cochlea.RATE_HZ  # the onset
    assert rate[:n].max() > 5 * steady > 5 * rest[0]
    np.testing.assert_allclose(rate[n - 1], steady, rtol=0.01)
    assert rate[n : n + 500].min() < 0.7 * rest[0]  # exhausted after the tone
    np.testing.assert_allclose(rate[-1], rest[0], rtol=0.05)  # made anew at 5 per s
    assert (cochlea.hair_cell(np.full(n, -1000.0)) >= 0).all()


def test_nerve_fibres_keep_their_dead_time_and_rate():
    rate, n = 500.0, 5 * cochlea.RATE_HZ
    for fibres in (1, 40):
        counts = cochlea.nerve(np.full(n, rate), np.random.default_rng(1), fibres)
        dead = round(cochlea.DEAD_TIME * cochlea.RATE_HZ)
        assert np.convolve(counts, np.ones(dead, int)).max() <= fibres
        dead_s = cochlea.DEAD_TIME - cochlea.DT / 2  # it begins somewhere within a step
        expected = fibres * rate / (1 + rate * dead_s)  # 1/s: a renewal process
        assert abs(counts.sum() / 5 / expected - 1) < 4 / np.sqrt(expected * 5)
    assert cochlea.nerve(np.zeros(1000), np.random.default_rng(1)).sum() == 0


def test_a_bushy_cell_wants_coincidence_and_pauses_after_a_spike():
    def volley(n):
        counts = np.zeros(2000, np.int64)
        counts[100] = n
        return cochlea.bushy_cell(counts)

    # n spikes at once lift the membrane to n WEIGHT 1 ms / 4 = 0.081 n
    assert len(volley(11)) == 0
    assert len(volley(14)) == 1
    spikes = cochlea.bushy_cell(np.full(24_000, 40))
    assert np.diff(spikes).min() > cochlea.REFRACTORY * cochlea.RATE_HZ
    assert len(cochlea.bushy_cell(np.zeros(24_000, np.int64))) == 0


def test_silence_is_nearly_silent_and_no_spike_depends_on_loudness(ear):
    step, _ = cochlea._channels_to_spikes(np.zeros((700, 24_000), np.float32), 24_000, np.random.default_rng(0))
    assert len(step) < 700  # spontaneous: below one a channel and second
    sound = voices.utter(3, 0, np.random.default_rng(0))
    first, second = (ear.spikes(sound.astype(float) * gain, np.random.default_rng(5)) for gain in (1, 1024))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_an_utterance_does_not_depend_on_what_was_spoken_before():
    def said(seed=7):
        return hashlib.md5(voices.speak("seven", "en+f5", 110, 50, 50, seed).tobytes()).hexdigest()

    alone = subprocess.run(
        [
            sys.executable,
            "-c",
            "import hashlib; from elm_lib.simulate.speech.voices import speak;"
            "print(hashlib.md5(speak('seven', 'en+f5', 110, 50, 50, 7).tobytes()).hexdigest())",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert said() == alone
    voices.speak("null", "de+m7", 90, 30, 60, 8)
    for voice in ("de+nobody", "xx+m7"):
        with pytest.raises(DataError, match=f"no voice '{re.escape(voice)}'"):
            voices.speak("null", voice, 90, 30, 60, 8)
    assert said() == alone
    assert said(seed=8) != alone  # this voice uses random numbers


def test_every_speaker_says_every_word():
    sounds = {}
    for speaker in range(len(voices.SPEAKERS)):
        for label in range(20):
            sounds[speaker, label] = sound = voices.utter(label, speaker, np.random.default_rng([speaker, label]))
            assert 0.3 < len(sound) / voices.SOUND_RATE_HZ <= voices.LONGEST_S
    assert len({sound.tobytes() for sound in sounds.values()}) == 240


def test_two_speakers_are_in_the_test_alone_and_words_are_balanced():
    train, test = ([digits.plan(split, i) for i in range(n)] for split, n in (("train", 400), ("test", 1000)))
    assert not {speaker for _, speaker in train} & set(digits.HELD_OUT)
    assert {speaker for _, speaker in test} == set(range(12))
    assert set(np.bincount([label for label, _ in train])) == {20}
    assert set(np.bincount([speaker for _, speaker in train])) == {0, 40}
    assert np.mean([speaker in digits.HELD_OUT for _, speaker in test]) == 0.8


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="session")
def generated(tmp_path_factory, ear):
    """Two folders: made by one worker at a stretch; by two, after an interruption."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder, workers in zip(folders, (1, 2), strict=True):
        _ready(folder, ear)
        if workers == 2:  # one part was done, one was damaged
            digits._write_part(folder / "parts", "train", tuple(range(SIZES["train"])), 3)
            digits._part_path(folder / "parts", "test", (0,)).write_bytes(b"PK\x03\x04 damaged")
            with pytest.warns(UserWarning, match=r"test_000000\.npz cannot be read"):
                digits.generate(folder, SIZES, 3, workers=workers, progress=False)
        else:
            digits.generate(folder, SIZES, 3, workers=workers, progress=False)
    return folders


def _ready(folder, ear):
    """The slow beginning is done: the transfer function of the membrane."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    np.save(digits._transfer_path(folder / "parts"), ear.transfer)


def test_files_depend_neither_on_workers_nor_on_interruptions(generated):
    one, two = map(digests, generated)
    assert list(one) == ["test.h5", "train.h5", "valid.h5"]
    assert one == two


def test_what_is_there_is_kept_and_another_seed_makes_it_again(generated, monkeypatch):
    calls = []

    def counted(jobs, workers, parts):
        calls.append([(job[1], job[2]) for job in jobs])
        return iter(())

    monkeypatch.setattr(digits, "_run", counted)
    digits.generate(generated[0], SIZES, 3, progress=False)
    assert calls == []
    with pytest.raises(DataError, match="train_000000.npz: cannot be read"):
        digits.generate(generated[1], SIZES, 4, progress=False)
    assert calls == [[("train", tuple(range(SIZES["train"]))), ("test", (0, 1))]]
    with pytest.raises(ValueError, match="at least 1"):
        digits.generate(generated[1], {"train": 0, "test": 1}, 3)
    with pytest.raises(ValueError, match="4 utterances leave none for validation"):
        digits.generate(generated[1], {"train": 4, "test": 1}, 3)


def test_words_that_evaluation_needs_are_had_before_the_others(generated, tmp_path, ear, monkeypatch):
    spoken = []

    def counted(sequence, i, *rest, utterance=digits.utterance):
        spoken.append((sequence, i))
        return utterance(sequence, i, *rest)

    monkeypatch.setattr(digits, "utterance", counted)

    def make(**options):
        _ready(tmp_path, ear)
        spoken.clear()
        return digits.generate(tmp_path, SIZES, 3, workers=1, progress=False, **options)

    valid = np.flatnonzero(validation_mask(SIZES["train"])).tolist()
    assert set(make(splits=("valid", "test"), most={"test": 1})) == {"valid", "test"}
    assert spoken == [*(("train", i) for i in valid), ("test", 0)]
    assert len(open_recordings(tmp_path / "test.h5")) == 1
    make(splits=("train",))
    assert spoken == [("train", i) for i in range(SIZES["train"]) if i not in valid]
    make()
    assert spoken == [("test", 1)]
    assert digests(tmp_path) == digests(generated[0])


def test_data_without_training_words_are_evaluated_as_with_them(generated, tmp_path):
    for name in ("valid.h5", "test.h5"):
        shutil.copy(generated[0] / name, tmp_path)
    few, every = ShdData(tmp_path), ShdData(generated[0])
    (tmp_path / "published").mkdir()
    for name in ("train.h5", "test.h5"):
        shutil.copy(generated[0] / name, tmp_path / "published")
    published = ShdData(tmp_path / "published")
    assert few.held_out_speakers == every.held_out_speakers == published.held_out_speakers
    for split in ("valid", "test"):
        options = {"batch_size": 4, "bin_ms": 10, "adding": True, "n_pairs": 4}
        batches = [next(data.split_batches(split, **options)) for data in (few, every, published)]
        for name in ("row_ptr", "channel", "value", "label", "speaker"):
            assert all(torch.equal(getattr(batch, name), getattr(batches[0], name)) for batch in batches), name
    with pytest.raises(DataError, match=r"train\.h5: no such file"):
        few.batch(seed=0, epoch=0, step=0, batch_size=1, bin_ms=10)


def test_an_utterance_is_the_same_in_a_file_of_any_size(generated, ear):
    time_s, channel = digits.utterance("train", 3, 3, ear)
    found = open_recordings(generated[0] / "train.h5")
    np.testing.assert_array_equal(found.spikes(3)[0], time_s.astype(np.float16))
    assert sorted(found.spikes(3)[1]) == sorted(channel)
    assert (found.label[3], found.speaker[3]) == digits.plan("train", 3)


def test_generated_digits_look_like_the_published_ones(generated):
    """Published: 0.32-1.17 s, some thousand spikes (a clip of 0.80 s: 7,150), mostly in channels 350-690."""
    found = open_recordings(generated[0] / "train.h5")
    of = found.statistics()
    assert found.source == "generated"
    assert (of["spikes"] > 1000).all()
    assert (of["spikes"] < 12_000).all()
    assert 3000 < of["spikes"].mean() < 9000
    assert (of["channels"] > 350).all()
    assert ((of["duration_s"] > 0.3) & (of["duration_s"] < 1.21)).all()
    assert np.mean((found.channel >= 300) & (found.channel < 700)) > 0.7
