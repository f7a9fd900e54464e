"""What makes recordings of one speaker differ: each property on its own, and all in the words of one speaker."""

import numpy as np
import pytest

from elm_lib.simulate.speech import recording, voices

RATE = 22_050


def _tone(frequency=500.0, seconds=0.4):
    return np.sin(2 * np.pi * frequency * np.arange(int(seconds * RATE)) / RATE)


def test_a_tilt_raises_high_frequencies_by_so_many_db_an_octave():
    for frequency, octaves in ((500.0, -1), (1000.0, 0), (4000.0, 2)):
        tone = _tone(frequency)
        gained = 20 * np.log10(recording.tilted(tone, RATE, 3.0).std() / tone.std())
        assert gained == pytest.approx(3.0 * octaves, abs=0.1)
    lower, low = (recording.tilted(_tone(frequency), RATE, 3.0).std() for frequency in (50.0, 100.0))
    assert lower == pytest.approx(low, rel=0.02)


@pytest.mark.parametrize(("reverberation_s", "echo_db"), [(0.1, -12.0), (0.4, -30.0)])
def test_echoes_have_the_energy_and_the_decay_of_the_room(reverberation_s, echo_db):
    click = np.zeros(10)
    click[0] = 1.0
    heard = recording.in_room(click, RATE, reverberation_s, echo_db, np.random.default_rng(0))
    assert heard[0] == pytest.approx(1.0)
    echoes = heard[1:]
    assert 10 * np.log10(np.sum(echoes**2)) == pytest.approx(echo_db, abs=0.5)
    half = len(echoes) // 2  # after half the time 30 dB of 60 are lost
    fall = 10 * np.log10(np.sum(echoes[half:] ** 2) / np.sum(echoes**2))
    assert fall == pytest.approx(-30, abs=3)


def test_a_recording_begins_late_ends_when_it_is_not_heard_and_has_noise():
    voice = np.concatenate([np.zeros(2000), _tone(), np.zeros(9000)])
    onsets, noise, lengths, levels = [], [], [], []
    for seed in range(60):
        sound = recording.record(voice, RATE, np.random.default_rng(seed))
        assert np.abs(sound).max() == pytest.approx(1.0)
        onset = int(np.argmax(np.abs(sound) > 0.2)) / RATE
        onsets.append(onset)
        before = sound[: int(max(onset - 0.005, 0) * RATE)]
        if len(before) > 200:
            noise.append(20 * np.log10(before.std() / sound.std()))
        lengths.append(len(sound) / RATE)
        middle = sound[int((onset + 0.02) * RATE) :]
        levels.append(20 * np.log10(middle[:1000].std() / middle[5000:6000].std()))
    assert 0 <= min(onsets) < 0.01 and 0.06 < max(onsets) < recording.LATEST_S + 0.05
    assert np.median(onsets) == pytest.approx(np.log(2) * recording.ONSET_S, abs=0.015)
    assert recording.NOISE_DB[0] - 3 < min(noise) < -50 and -40 < max(noise) < recording.NOISE_DB[1] + 3
    assert 0.3 < min(lengths) < max(lengths) < 0.4 * np.exp(4 * recording.TRACT) + 0.4 + recording.LATEST_S
    assert np.std(levels) > 1.0  # dB: it gets louder, or softer


def test_the_words_of_one_speaker_vary_as_published_durations_do():
    """Published: 0.32 to 1.17 s over all words and speakers. One word of one voice covers a good part of it."""
    sounds = [voices.utter(3, 0, np.random.default_rng(seed)) for seed in range(40)]
    seconds = np.array([len(sound) / RATE for sound in sounds])
    assert seconds.std() / seconds.mean() > 0.15 and 0.25 < seconds.min() and seconds.max() <= voices.LONGEST_S
    centre = []
    for sound in sounds:
        spectrum, frequency = np.abs(np.fft.rfft(sound)) ** 2, np.fft.rfftfreq(len(sound), 1 / RATE)
        centre.append(float(np.sum(spectrum * frequency) / np.sum(spectrum)))
    assert np.std(centre) / np.mean(centre) > 0.1  # pitch, formants, tilt
    again = voices.utter(3, 0, np.random.default_rng(7))
    assert np.array_equal(again, sounds[7]) and again.dtype == np.int16
