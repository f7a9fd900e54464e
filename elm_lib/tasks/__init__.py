"""What a data set asks of a model: batches, loss, evaluation. One module a data set, each with a class `Task`."""

from __future__ import annotations

from importlib import import_module


def task_class(name: str) -> type:
    """`Task` of elm_lib.tasks.<name>; found by name, so that a run depends on its own data set's code alone."""
    return import_module(f"elm_lib.tasks.{name}").Task
