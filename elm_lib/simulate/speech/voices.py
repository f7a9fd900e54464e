"""Spoken digits: ten words in English and German by twelve synthetic speakers (espeak-ng).

The real data set has twelve human speakers who read both languages. Here a speaker is a voice variant of espeak-ng with
a pace and a pitch of its own. From one utterance to the next pace, pitch and intonation vary, and what
`elm_lib.simulate.speech.recording` says.
"""

from __future__ import annotations

import _ctypes
import ctypes
from dataclasses import dataclass
from pathlib import Path

import espeakng_loader
import numpy as np

from elm_lib.simulate.speech.recording import record
from elm_lib.simulate.speech.words import WORDS
from elm_lib.support.errors import DataError

SOUND_RATE_HZ = 22_050
LONGEST_S = 1.2  # s: what is longer is cut; the real digits last 0.32-1.17 s

FASTER = 1.1  # so that words last as long as the published ones, with the echoes behind them
PACE_SPREAD = 0.2  # standard deviation of its logarithm from utterance to utterance
PITCH_SPREAD = 12.0  # of espeak's 0..100
INTONATION, INTONATION_SPREAD = 50.0, 20.0  # how much the pitch moves within a word, of espeak's 0..100
LARGEST = 30_000  # sample of an utterance
SLOWEST, FASTEST = 80, 450  # words a minute that espeak can speak


@dataclass(frozen=True)
class Speaker:
    """variant: of the voice; english: espeak's language; gender; pace in words a minute; pitch: 0..100, 50 is the
    variant's own."""

    variant: str
    english: str
    gender: str
    pace: int
    pitch: int


SPEAKERS = (
    Speaker("m1", "en-us", "male", 105, 45),
    Speaker("f1", "en-us", "female", 100, 50),
    Speaker("m3", "en", "male", 95, 40),
    Speaker("Annie", "en", "female", 110, 45),
    Speaker("f4", "en-us", "female", 95, 55),
    Speaker("m7", "en", "male", 100, 55),
    Speaker("quincy", "en-us", "male", 90, 60),
    Speaker("f5", "en", "female", 105, 45),
    Speaker("Andy", "en-us", "male", 110, 50),
    Speaker("steph", "en-us", "female", 90, 40),
    Speaker("travis", "en", "male", 115, 55),
    Speaker("linda", "en", "female", 100, 45),
)


def utter(label: int, speaker: int, rng: np.random.Generator) -> np.ndarray:
    """One spoken digit as it is recorded, int16 (T,) at 22,050 Hz, at most 1.2 s.

    label: 0-9 English, 10-19 German. The samples depend on the arguments alone, not on what was spoken before.
    """
    who = SPEAKERS[speaker]
    pace = int(np.clip(round(FASTER * who.pace * np.exp(PACE_SPREAD * rng.standard_normal())), SLOWEST, FASTEST))
    pitch = int(np.clip(round(who.pitch + PITCH_SPREAD * rng.standard_normal()), 0, 100))
    intonation = int(np.clip(round(INTONATION + INTONATION_SPREAD * rng.standard_normal()), 0, 100))
    language = who.english if label < 10 else "de"
    voice = f"{language}+{who.variant}"
    sound = speak(WORDS[label], voice, pace, pitch, intonation, seed=int(rng.integers(1, 2**31)))
    recorded = record(sound, SOUND_RATE_HZ, rng)[: int(LONGEST_S * SOUND_RATE_HZ)]
    return np.round(recorded * LARGEST).astype(np.int16)


def speak(text: str, voice: str, pace: int, pitch: int, intonation: int, seed: int) -> np.ndarray:
    """Text by one voice of espeak-ng, int16 (T,) at 22,050 Hz, silence before and after included.

    voice: "de+f2": language and variant. seed > 0: of the random numbers that a few voices use.
    The library keeps state from one utterance to the next (filters, phases, random numbers) that its own restart does
    not clear, so it is loaded afresh each time (8 ms) and its C library's random numbers are seeded. Not for several
    threads of one process. Raises DataError for a voice that it does not have.
    """
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        return _speak(library, text, voice, pace, pitch, intonation, seed)
    finally:
        library.espeak_Terminate()
        _ctypes.dlclose(library._handle)


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def _speak(
    library: ctypes.CDLL, text: str, voice: str, pace: int, pitch: int, intonation: int, seed: int
) -> np.ndarray:
    synchronous, dont_exit, utf8, by_character = 2, 0x8000, 1, 1  # names of espeak's speak_lib.h
    parameters = {1: pace, 3: pitch, 4: intonation}  # espeakRATE, espeakPITCH, espeakRANGE
    pieces = []

    @_CALLBACK
    def collect(samples, n, events):
        if samples and n > 0:
            pieces.append(np.ctypeslib.as_array(samples, (n,)).copy())
        return 0

    found = library.espeak_Initialize(synchronous, 0, espeakng_loader.get_data_path().encode(), dont_exit)
    if found != SOUND_RATE_HZ:
        raise DataError(
            f"{espeakng_loader.get_data_path()}: espeak-ng gives {found}, not {SOUND_RATE_HZ} Hz: "
            "reinstall espeakng-loader"
        )
    library.espeak_SetSynthCallback(collect)
    library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
    ctypes.CDLL(None).srand(ctypes.c_uint(seed))
    variant = Path(
        espeakng_loader.get_data_path(), "voices", "!v", voice.split("+")[1]
    )  # a missing one espeak passes over
    if not variant.is_file() or library.espeak_SetVoiceByName(voice.encode()) != 0:
        raise DataError(f"{espeakng_loader.get_data_path()}: espeak-ng has no voice {voice!r}")
    for parameter, value in parameters.items():
        library.espeak_SetParameter(parameter, value, 0)
    content = text.encode() + b"\0"
    if library.espeak_Synth(content, ctypes.c_size_t(len(content)), 0, by_character, 0, utf8, None, None) != 0:
        raise DataError(f"espeak-ng could not speak {text!r} as {voice!r}")
    library.espeak_Synchronize()
    return np.concatenate(pieces)
