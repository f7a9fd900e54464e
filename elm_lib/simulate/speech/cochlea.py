"""From sound to spikes: the artificial inner ear behind the Spiking Heidelberg Digits.

    sound -> basilar membrane -> hair cells -> auditory nerve -> bushy cells -> spikes of 700 channels

Cramer et al. (2020), doi:10.1109/TNNLS.2020.3044364, with the membrane of Sieroka et al. (2006) and the hair cells of
Meddis (1986, 1988). Channel 0 answers to the highest frequencies, channel 699 to the lowest.

`Cochlea` holds the membrane's transfer function, computed once, and turns one utterance after the other into spikes;
every stage is a function of its own. Time steps are 1/24000 s throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.special import hankel1e, j0, j1, y0, y1

from elm_lib.support.compiled import njit_cached

N_CHANNELS = 700
RATE_HZ = 24_000  # of the membrane's movement and of all that follows
DT = 1 / RATE_HZ  # s
LONGEST_S = 1.28  # s: an utterance of 1.2 s with its ringing fits into one Fourier transform, of a good length
SOUND_RATE_HZ = 22_050  # of the sound: espeak-ng's
LOUDNESS = 0.3  # root mean square of the sound

# Basilar membrane, Sieroka et al. (2006): stiffness c0 exp(-ALPHA c) - A at place c (cm from the stapes), cgs units
LENGTH = 3.5  # cm
ALPHA = 3.0  # 1/cm: how fast the stiffness falls
C0 = 1e9  # g/(s^2 cm^2): stiffness at the stapes
A = 3500.0  # g/(s^2 cm^2)
RHO = 1.0  # g/cm^3: density of the fluid
HEIGHT = 0.1  # cm: of the scala
MASS = 0.05  # g/cm^2: of the membrane
DAMPING = 0.15  # 1: relative to sqrt(C0 MASS)

# Hair cell, Meddis (1986, 1988): rates of the transmitter's cycle
Y, L, R, X = 5.05, 2500.0, 6580.0, 66.3  # 1/s: made anew, lost from the cleft, taken up again, reprocessed
G, A_HAIR, B_HAIR = 2000.0, 5.0, 300.0  # 1/s: greatest release; displacement at which it starts, half-saturates
H = 50_000.0  # 1/s: firing rate of a fibre for a unit of transmitter in the cleft
M = 1.0  # transmitter of a full pool

# Auditory nerve and bushy cells
FIBRES = 40  # of each channel
DEAD_TIME = 1e-3  # s: between two spikes of one fibre
TAU_MEM, TAU_SYN = 1e-3, 0.5e-3  # s
REFRACTORY = 1e-3  # s
THRESHOLD, RESET = 1.0, 0.0
WEIGHT = 13_000 / FIBRES  # 1/s: drive of the membrane by one spike


def place(channel: np.ndarray | int, n_channels: int = N_CHANNELS) -> np.ndarray:
    """Distance of a channel from the stapes in cm."""
    return np.asarray(channel) * LENGTH / (n_channels - 1)


def membrane_transfer(frequency_hz: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Velocity of the basilar membrane at places c (C,) in cm for a unit sound of frequency_hz (F,), all > 0: complex
    (C, F).

    The long-wave and short-wave limits of the travelling wave joined by a Hankel function, v = 2 w / xi  p(w, c) z(w) /
    p(w, 0).
    """
    w = 2 * np.pi * np.asarray(frequency_hz, np.float64)
    c = np.asarray(c, np.float64)[:, None]
    r0 = DAMPING * np.sqrt(C0 * MASS)
    q = np.sqrt(A + MASS * w**2)

    def impedance(c):
        return C0 * np.exp(-ALPHA * c) - A - MASS * w**2 - 1j * w * r0 * np.exp(-ALPHA * c / 2)

    def wave_number(xi):
        return w * np.sqrt(RHO / (HEIGHT * xi))

    xi, xi_0 = impedance(c), impedance(0.0)
    g, g_0 = wave_number(xi), wave_number(xi_0)
    numerator = ALPHA * (-np.sqrt(xi_0) + 1j * (2 * A + w * (2 * w * MASS + 1j * r0)) / (2 * q))

    def phase(c, xi):  # the wave number summed up along the membrane
        r = r0 * np.exp(-ALPHA * c / 2)
        denominator = (
            (ALPHA / 2) * np.exp(ALPHA * c / 2) * (-2 * np.sqrt(xi) + 1j * (2 * A + w * (2 * MASS * w + 1j * r)) / q)
        )
        turn = 2 * np.sqrt(2) * 1j * w * np.log(numerator / denominator)
        return 2 / ALPHA * g_0 - turn / (ALPHA * np.sqrt(2 * HEIGHT * (MASS * w**2 + A)))

    phase_c, phase_0 = phase(c, xi), phase(0.0, xi_0)
    # hankel1e(0, G) = H0(G) exp(-i G): what it leaves out of the ratio is put back at the end, without overflow
    pressure = np.sqrt(phase_c / g) * hankel1e(0, phase_c)
    pressure_0 = np.sqrt(phase_0 / g_0) * hankel1e(0, phase_0)
    k = 2 * w / ALPHA * np.sqrt(2 / (HEIGHT * C0))
    z = np.sqrt(2 * C0 / HEIGHT) * (1j * j0(k) + y0(k)) / (j1(k) - 1j * y1(k))
    return 2 * w / xi * z * pressure / pressure_0 * np.exp(1j * (phase_c - phase_0))


@njit_cached
def hair_cell(velocity):
    """Movement of the membrane (T,) -> firing rate of each nerve fibre behind it in 1/s, (T,).

    q, c, w: transmitter in the free pool, in the cleft, being reprocessed; at rest before the first step.
    """
    q, c, w = resting_transmitter()
    rate = np.empty(velocity.size)
    for t in range(velocity.size):
        drive = velocity[t] + A_HAIR
        k = G * drive / (drive + B_HAIR) if drive > 0 else 0.0  # 1/s: permeability of the cell
        dq = Y * (M - q) + X * w - k * q
        dc = k * q - (L + R) * c
        dw = R * c - X * w
        q, c, w = q + DT * dq, c + DT * dc, w + DT * dw
        rate[t] = H * c
    return rate


@njit_cached
def resting_transmitter():
    """(q, c, w) at which the hair cell stays in silence."""
    k = G * A_HAIR / (A_HAIR + B_HAIR)
    c = M * Y * k / (L * k + Y * (L + R))
    return c * (L + R) / k, c, c * R / X


@njit_cached
def nerve(rate, rng, fibres=FIBRES):
    """Rate (T,) in 1/s -> number of spikes (T,) that a bundle of fibres fires in each step.

    Every fibre fires at `rate` unless it fired less than 1 ms (24 steps) ago. Fibres are alike, so only the number of
    those ready matters: the bundle fires when ready * rate, summed over time, has reached an exponentially distributed
    number.
    """
    dead = round(DEAD_TIME * RATE_HZ)  # steps
    counts = np.zeros(rate.size, np.int64)
    ready = fibres
    to_go = rng.standard_exponential()
    for t in range(rate.size):
        if t >= dead:
            ready += counts[t - dead]
        left = DT  # s: of this step
        while to_go <= ready * rate[t] * left:
            left -= to_go / (ready * rate[t])
            counts[t] += 1
            ready -= 1
            to_go = rng.standard_exponential()
        to_go -= ready * rate[t] * left
    return counts


@njit_cached
def bushy_cell(counts):
    """Spikes of the nerve in each step (T,) -> steps at which the bushy cell fires, int64: a leaky integrate-and-fire
    neuron."""
    stay_mem, stay_syn = np.exp(-DT / TAU_MEM), np.exp(-DT / TAU_SYN)
    pause = round(REFRACTORY * RATE_HZ)  # steps
    spikes = np.empty(counts.size // (pause + 1) + 1, np.int64)
    n, v, current, free_at = 0, RESET, 0.0, 0
    for t in range(counts.size):
        current = current * stay_syn + counts[t]
        if t < free_at:
            continue
        v = v * stay_mem + WEIGHT * current * DT
        if v >= THRESHOLD:
            spikes[n] = t
            n += 1
            v = RESET
            free_at = t + pause + 1
    return spikes[:n]


@njit_cached
def _channels_to_spikes(velocity, n_steps, rng):
    """Movement (C, >= n_steps) -> (step, channel) of every spike, by channel."""
    found = [bushy_cell(nerve(hair_cell(velocity[c, :n_steps]), rng)) for c in range(velocity.shape[0])]
    n = 0
    for spikes in found:
        n += spikes.size
    step, channel = np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for c in range(len(found)):
        step[n : n + found[c].size] = found[c]
        channel[n : n + found[c].size] = c
        n += found[c].size
    return step, channel


def compile_stages() -> None:
    """Compile the loops into numba's cache (10 s the first time)."""
    _channels_to_spikes(np.zeros((1, 24), np.float32), 24, np.random.default_rng(0))


def loudness(sound: np.ndarray) -> np.ndarray:
    """Sound (T,) -> the same at the fixed loudness, faded in and out by a Hann window over its whole length."""
    sound = np.asarray(sound, np.float64)
    return sound * (LOUDNESS / np.sqrt(np.mean(sound**2))) * np.hanning(sound.size)


def transfer_table(c: np.ndarray) -> np.ndarray:
    """`membrane_transfer` at places c (C,) in cm and frequencies 0, 1/1.28 s, 2/1.28 s, ... up to 11,025 Hz: complex64
    (C, 14113).

    Takes about 15 s for 700 places.
    """
    n_frequencies = round(SOUND_RATE_HZ * LONGEST_S) // 2 + 1
    transfer = np.zeros((len(c), n_frequencies), np.complex64)  # nothing moves at 0 Hz
    for first in range(1, n_frequencies, 512):
        k = np.arange(first, min(first + 512, n_frequencies))
        transfer[:, k] = membrane_transfer(k / LONGEST_S, c)
    return transfer


@dataclass(frozen=True, eq=False)
class Cochlea:
    """The chain, ready to use. transfer: complex64 (C, F), see `transfer_table`."""

    transfer: np.ndarray

    @property
    def n_channels(self) -> int:
        return self.transfer.shape[0]

    def membrane(self, sound: np.ndarray) -> np.ndarray:
        """Sound (T,) at 22,050 Hz -> movement of the membrane at 24 kHz, float32 (C, at least T 24000 / 22050)."""
        every = 2 if sound.size / SOUND_RATE_HZ <= LONGEST_S / 2 - 0.04 else 1  # half the length where ringing has room
        n_sound, n_steps = (round(rate * LONGEST_S / every) for rate in (SOUND_RATE_HZ, RATE_HZ))
        if sound.size > n_sound:
            raise ValueError(f"a sound of {sound.size / SOUND_RATE_HZ:.2f} s: {LONGEST_S} s is the longest")
        spectrum = fft.rfft(sound, n_sound).astype(np.complex64)
        moved = np.zeros((self.n_channels, n_steps // 2 + 1), np.complex64)
        np.multiply(self.transfer[:, ::every], spectrum, out=moved[:, : spectrum.size])
        return fft.irfft(moved, n_steps, axis=1) * np.float32(RATE_HZ / SOUND_RATE_HZ)

    def spikes(self, sound: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Sound (T,) at 22,050 Hz, any loudness -> times in s, float64, and channels, int64, of its spikes, sorted by
        time."""
        n_steps = int(sound.size * RATE_HZ / SOUND_RATE_HZ)
        step, channel = _channels_to_spikes(self.membrane(loudness(sound)), n_steps, rng)
        order = np.lexsort((channel, step))
        return step[order] * DT, channel[order]
