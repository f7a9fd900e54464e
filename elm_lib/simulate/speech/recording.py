"""What makes one recording of a word differ from the next, though the same speaker says it.

Recordings of people differ in how far the mouth is opened, in how loud the word begins and ends, in the room, in the
distance to the microphone, in the noise, and in how soon the word begins. Synthetic speech has none of this.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve, resample

AUDIBLE = 0.01  # of the largest sample: where a word begins and ends
TRACT = 0.04  # relative standard deviation of the formants
LEVEL_DB = 4.0  # dB, standard deviation of the change of level from the beginning of a word to its end
TILT_DB = 3.0  # dB an octave, standard deviation: how near the microphone is, and where it points
REVERBERATION_S = (0.1, 0.4)  # s, until the echoes of a room have lost 60 dB
ECHO_DB = (-30.0, -12.0)  # dB, energy of the echoes relative to the voice
NOISE_DB = (-60.0, -35.0)  # dB, of the room's noise relative to the voice
ONSET_S = 0.03  # s, mean of the silence before the word, exponentially distributed
LATEST_S = 0.12  # s
TILT_HZ = (100.0, 1000.0)  # Hz: no tilt below the first; unchanged at the second


def record(voice: np.ndarray, rate_hz: int, rng: np.random.Generator) -> np.ndarray:
    """A voice (T,) as one recording has it: float64, largest sample 1, from its onset to where it can no longer be
    heard."""
    sound = trim(voice.astype(np.float64))
    sound = resample(sound, max(round(len(sound) * float(np.exp(TRACT * rng.standard_normal()))), 2))
    sound = sound * 10 ** (LEVEL_DB * rng.standard_normal() * np.linspace(-0.5, 0.5, len(sound)) / 20)
    sound = tilted(sound, rate_hz, TILT_DB * rng.standard_normal())
    sound = trim(in_room(sound, rate_hz, rng.uniform(*REVERBERATION_S), rng.uniform(*ECHO_DB), rng))
    silence = min(rng.exponential(ONSET_S), LATEST_S)
    sound = np.concatenate([np.zeros(round(silence * rate_hz)), sound])
    level = np.sqrt(np.mean(sound**2))
    sound = sound + level * 10 ** (rng.uniform(*NOISE_DB) / 20) * rng.standard_normal(len(sound))
    return sound / np.abs(sound).max()


def trim(sound: np.ndarray) -> np.ndarray:
    """A sound (T,) from its first to its last audible sample."""
    audible = np.flatnonzero(np.abs(sound) > AUDIBLE * np.abs(sound).max())
    return sound[audible[0] : audible[-1] + 1]


def tilted(sound: np.ndarray, rate_hz: int, db_an_octave: float) -> np.ndarray:
    """A sound whose spectrum rises by so many dB an octave, unchanged at 1 kHz."""
    frequency = np.fft.rfftfreq(len(sound), 1 / rate_hz)
    octaves = np.log2(np.maximum(frequency, TILT_HZ[0]) / TILT_HZ[1])
    return np.fft.irfft(np.fft.rfft(sound) * 10 ** (db_an_octave * octaves / 20), len(sound))


def in_room(
    sound: np.ndarray, rate_hz: int, reverberation_s: float, echo_db: float, rng: np.random.Generator
) -> np.ndarray:
    """A sound with its echoes: noise whose energy falls by 60 dB within reverberation_s, in all echo_db of the sound's.

    Returns (T + reverberation_s rate_hz - 1,).
    """
    t = np.arange(round(reverberation_s * rate_hz)) / rate_hz
    echoes = rng.standard_normal(len(t)) * 10 ** (-3 * t / reverberation_s)
    echoes *= 10 ** (echo_db / 20) / np.sqrt(np.sum(echoes**2))
    echoes[0] = 1.0  # the voice itself
    return fftconvolve(sound, echoes)
