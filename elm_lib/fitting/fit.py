"""Fit an ELM to a neuron of your own, with the training loop, loss and scores of the paper's experiments.

Everything lands in the user's folder `out`:

    <key>.safetensors     the fitted neuron with its settings: `elm_lib.load_fit`
    <key>/                what the training loop wrote: result.json, curve.csv, statistics.npz, model.safetensors
    data/<name>.npz       the recording in steps

The key hashes the data, model, training, seed and the revisions of the code, as keys of the ledger do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from elm_lib.datasets.recorded.nwb import read_nwb
from elm_lib.datasets.recorded.schema import Prepared, Recording, prepare
from elm_lib.datasets.recorded.trials import read_simulations, read_trials
from elm_lib.experiments.plan import KEY_LENGTH, digest, revisions, without_defaults
from elm_lib.fitting.choices import Choices, choose
from elm_lib.fitting.fitted import Fitted, load_fit, write
from elm_lib.models.registry import completed
from elm_lib.support.errors import DataError
from elm_lib.support.processes import progress
from elm_lib.training.optimisation import Train
from elm_lib.training.run import Run, pick_device, read_result, threads_as_before, train_run

TASK = "recorded"


def fit(
    inputs: Sequence[Any] | str | Path,
    voltage: Sequence[Any] | None = None,
    spikes: Sequence[Any] | None = None,
    *,
    dt_ms: float | None = None,
    signs: Sequence[float] | None = None,
    out: str | Path = "fitted",
    delta_t: float | None = None,
    held_out: Sequence[int] | None = None,
    cap_mv: float | None = None,
    window_ms: float | None = None,
    burn_in_ms: float | None = None,
    model: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
) -> Fitted:
    """Train an ELM to predict when a neuron spikes, and its soma voltage, from the spikes that it receives.

    inputs     N trials, each a list of C arrays: times (ms) of the spikes at each synapse. Or a file alone: .nwb
               (`elm_lib.datasets.recorded.nwb`), or .h5 of this project, or a folder of these
    voltage    N arrays (T,): soma voltage (mV), sampled every dt_ms
    spikes     N arrays: times (ms) of the output spikes; None: upward crossings of -20 mV
    dt_ms      sampling step of the voltage, any
    signs      (C,) +1 for an excitatory, -1 for an inhibitory synapse. On a Branch-ELM, neighbours on the dendrite
               should be neighbours in this order
    out        folder for all that is written
    What follows is chosen from the data where it is not given (`elm_lib.fitting.choices`).
    delta_t    ms of a step of the neuron
    held_out   numbers of the trials to test on
    cap_mv     voltage at which action potentials are cut off
    window_ms, burn_in_ms  length of a training sample, and of its part without loss
    model      arguments of the neuron, such as {"d_m": 50} or {"kind": "elm"}
    train      how it is trained, such as {"epochs": 50}: see `elm_lib.training.optimisation.Train`
    device     "cpu", "cuda" or "auto"

    A call that was interrupted goes on where it stopped; a call that was made before returns at once.
    Raises DataError, one sentence, for data that cannot be right; ConfigError for a model that cannot be built.
    """
    recording = _recording(inputs, voltage, spikes, dt_ms, signs, delta_t)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        chosen = choose(recording, window_ms=window_ms, burn_in_ms=burn_in_ms, model=model, train=train)
        held = None if held_out is None else list(held_out)
        data = prepare(recording, chosen.window, held_out=held, cap_mv=cap_mv, seed=seed)
        return _fitted(data, chosen, Path(out), seed, pick_device(device), threads)  # type: ignore[arg-type]  # checked there


def _fitted(data: Prepared, chosen: Choices, folder: Path, seed: int, device: str, threads: int) -> Fitted:
    options = {"n_synapses": data.recording.n_synapses, "window": chosen.window, "burn_in": chosen.burn_in}
    meaning: dict[str, Any] = {
        "task": TASK,
        "options": options,
        "model": without_defaults(chosen.model),
        "train": chosen.train.model_dump(),
        "seed": seed,
        "data": _identity(data),
        "revisions": revisions(chosen.model, TASK),
    }
    key = digest(meaning)[:KEY_LENGTH]
    path, file = folder / f"{key}.safetensors", folder / "data" / f"{digest(meaning['data'])[:KEY_LENGTH]}.npz"
    if not file.is_file():
        data.save(file)
    run = Run(
        experiment="fit",
        task=TASK,
        model=chosen.model,
        train=meaning["train"],
        seed=seed,
        data=str(file),
        folder=str(folder / key),
        options=options,
        device=device,
        threads=threads,
    )
    _train(run)
    if not path.is_file():
        _write(run, path, meaning | {"key": key, "model": completed(chosen.model)}, data)
    return load_fit(path)


def _recording(inputs, voltage, spikes, dt_ms, signs, delta_t) -> Recording:
    given = {"voltage": voltage, "spikes": spikes, "dt_ms": dt_ms, "signs": signs}
    if isinstance(inputs, str | Path):
        nwb = Path(inputs).suffix == ".nwb"
        extra = [name for name, value in (given if nwb else given | {"delta_t": delta_t}).items() if value is not None]
        if extra:
            raise TypeError(f"fit: the file {inputs} sets this itself: leave out {', '.join(extra)}")
        return read_trials(**read_nwb(inputs), delta_t=delta_t) if nwb else read_simulations(inputs)
    missing = [name for name in ("voltage", "dt_ms", "signs") if given[name] is None]
    if missing:
        raise TypeError(f"fit: arrays also need {', '.join(missing)}: give them, or give only the name of a file")
    return read_trials(inputs, **given, delta_t=delta_t)


def _identity(data: Prepared) -> dict[str, Any]:
    """What the data of a fit are: the recording by its hash, its parts, its target."""
    target = {"cap_mv": data.cap_mv, "bias_mv": data.bias_mv, "scale_mv": data.scale_mv}
    return {"sha256": data.recording.digest, "part": data.part.tolist(), "target": target}


def _train(run: Run) -> None:
    """Train, with a progress bar; what is done already is not done again. Leaves torch's number of threads alone."""
    if run.is_done():
        return
    with threads_as_before(), progress(Train.model_validate(run.train).steps, "fit", "step") as bar:

        def told(done: int) -> bool:
            if bar.n == 0:
                bar.initial = done - 1  # resumed: the rate is of this time's steps
            bar.update(done - bar.n)
            return False

        train_run(run, stop=told)


def _write(run: Run, path: Path, meaning: dict[str, Any], data: Prepared) -> None:
    """Write the fitted neuron. Raises DataError for a training that diverged."""
    content, folder = read_result(run.result), Path(run.folder)
    result = content["result"]
    if result["diverged"]:
        raise DataError(
            f"{folder}: the training diverged after {result['steps']} steps: give a lower learning rate, such as "
            f"train={{'lr': {run.train['lr'] / 5:g}}}"
        )
    header, *rows = (line.split(",") for line in (folder / "curve.csv").read_text().splitlines())
    settings = meaning | {
        "delta_t": data.recording.delta_t,
        "signs": [int(sign) for sign in data.recording.signs],
        "target": meaning["data"]["target"],
        "scores": {name: value for name, value in result.items() if name.startswith(("valid_", "test_"))},
        "curve": [dict(zip(header, map(float, row), strict=True)) for row in rows],
        "made": content["made"],
    }
    write(path, load_file(folder / "model.safetensors"), settings)
