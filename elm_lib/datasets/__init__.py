"""What a data set asks of a model: batches, loss, evaluation. One module a data set, each with a class `Task`.

Task(folder, batch_size, seed, **options)   options: the `task:` entry of an experiment
Task.sizes(**options)                    -> {"input_size": .., "d_o": ..}, what `elm_lib.models.registry.build` needs
Task.steps(**options)                    -> time steps of a sample, for FLOPs
task.batch(epoch, step)                  -> a batch, a pure function of its arguments; has `.to(device)`, and
                                         `.pieces(n)` -> [(piece, its share of the loss), ...] if `accumulate` is used
task.loss(model, batch)                  -> scalar
task.validate(model), task.test(model)   -> scores by name; the weights of lowest validation `task.select` are kept
Task.shown                               -> the scores that a notebook shows, of those of `test`
task.resident(device)                    -> the training set on a GPU for `elm_lib.training.cuda_graph`, or None
"""

from __future__ import annotations

from importlib import import_module


def task_class(name: str) -> type:
    """`Task` of elm_lib.datasets.<name>.task; found by name, so that a run depends on its own data set's code alone."""
    return import_module(f"elm_lib.datasets.{name}.task").Task
