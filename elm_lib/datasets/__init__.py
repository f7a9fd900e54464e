"""What a data set asks of a model: batches, loss, evaluation. One package a data set, the same rooms in each.

`recorded`, what a user gives to `elm_lib.fit`, has the task alone.

prepare.prepare(settings, sources, *, raw, out, splits, most)   makes the files of some splits
recipe.recipe(settings, folder, options)  -> {"train": {..}, "test": {..}}: what the data of a run are
recipe.label(settings, options)           -> {"source": .., "morphology": ..}, as tables show it

task.Task(folder, batch_size, seed, **options)   options: the `task:` entry of an experiment
Task.sizes(**options)                    -> {"input_size": .., "d_o": ..}, what `elm_lib.models.registry.build` needs
Task.steps(**options)                    -> time steps of a sample, for FLOPs
task.batch(epoch, step)                  -> a batch, a pure function of its arguments; has `.to(device)`, and
                                         `.pieces(n)` -> [(piece, its share of the loss), ...] if `accumulate` is used
task.loss(model, batch)                  -> scalar
task.validate(model)                     -> scores by name; the weights of lowest validation `task.select` are kept
task.evaluate(model, splits=.., most=..) -> (scores by name, statistics: arrays with a row each test sample)
task.test(model)                         -> the scores of `evaluate`
Task.shown                               -> the scores that a notebook shows, of those of `test`
task.resident(device)                    -> the training set on a GPU for `elm_lib.training.cuda_graph`, or None

A module is found by the data set's name, so a run depends on its own data set's code alone. No training data are needed
but by `batch`, `resident` and scores of the training set.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def task_class(name: str) -> type[Any]:
    """`Task` of the data set of that name."""
    return import_module(f"elm_lib.datasets.{name}.task").Task


def prepare(name: str, *arguments: Any, **options: Any) -> dict:
    """Make the data set of that name ready: see its `prepare`."""
    return import_module(f"elm_lib.datasets.{name}.prepare").prepare(*arguments, **options)


def ensure(name: str, settings: Any, *, raw: Any, out: Any, **options: Any) -> None:
    """Make every split of a data set that is not there yet, from what it is made of on. raw: where downloads are kept.

    options  of its `prepare`, such as splits=("test",)
    """
    module = import_module(f"elm_lib.datasets.{name}.prepare")
    module.prepare(settings, module.fetch(settings, raw=raw), raw=raw / module.RAW, out=out, **options)


def recipe(name: str, settings: Any, folder: Any, options: dict[str, Any]) -> dict[str, dict]:
    """What the training and validation data and the test set of a run are: {"train": .., "test": ..}, JSON-able.

    settings  of a profile;  folder: where the data are prepared;  options: the `task:` entry of the experiment
    Generated data are told by what generates them and need not be there; published ones by the checksums in the
    manifest of `folder`. Raises DataError, which names the command, where that is missing.
    """
    return import_module(f"elm_lib.datasets.{name}.recipe").recipe(settings, folder, options)


def label(name: str, settings: Any, options: dict[str, Any]) -> dict[str, str]:
    """How tables and figures name the data.

    {"source": "generated" | "generated, shortened" | "stand-in" | "real", "morphology": "exact" | "default" | ""}
    """
    return import_module(f"elm_lib.datasets.{name}.recipe").label(settings, options)
