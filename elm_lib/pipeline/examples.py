"""What the notebook `examples` needs: small data sets that a user might have, and a plain training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from elm_lib.simulate.speech.voices import SOUND_RATE_HZ, utter

FRAME = 441  # samples: 20 ms
BANDS = 12


def spoken_words(labels: list[int], speakers: list[int], seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """Words of espeak-ng (PyPI: espeakng-loader) as sequences of different lengths: each word by each speaker.

    labels    0 to 9 in English, 10 to 19 in German; speakers  0 to 11
    Returns   of each utterance (T, BANDS), the logarithm of the power in frequency bands each 20 ms, standardised; and
              the labels, (n,)
    """
    rng, sequences, spoken = np.random.default_rng(seed), [], []
    for speaker in speakers:
        for label in labels:
            sound = utter(label, speaker, rng).astype(np.float32)
            frames = torch.from_numpy(sound[: len(sound) // FRAME * FRAME]).view(-1, FRAME)
            power = torch.fft.rfft(frames * torch.hann_window(FRAME)).abs().square()
            edges = np.geomspace(4, power.shape[1], BANDS + 1).round().astype(int)  # 200 Hz to half of the sound's rate
            bands = torch.stack([power[:, a:b].mean(1) for a, b in zip(edges, edges[1:])], 1)
            loud = torch.log(bands + SOUND_RATE_HZ)
            sequences.append((loud - loud.mean()) / loud.std())
            spoken.append(label)
    return sequences, torch.tensor(spoken)


def adding_problem(batch: int, steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """x (B, T, 2): numbers in [0, 1) and two marks, one in each half; y (B,): the sum of the two marked numbers.

    Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735. To answer 1 has a squared error of 1/6.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers, marks = torch.rand(batch, steps, generator=generator), torch.zeros(batch, steps)
    half, row = steps // 2, torch.arange(batch)
    for first, n in ((0, half), (half, steps - half)):
        marks[row, first + torch.randint(n, (batch,), generator=generator)] = 1
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(1)


def fit(model: nn.Module, loss_of: Callable[[int], Tensor], steps: int, lr: float) -> list[float]:
    """Train by Adam with a cosine schedule; loss_of(step) is what is minimised. Returns the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in tqdm(range(steps), desc=type(model).__name__, mininterval=5):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def shuffled(n: int, batch: int, seed: int = 0) -> Iterator[Tensor]:
    """Indices of batches, epoch after epoch, without an end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(n, generator=generator).split(batch)
