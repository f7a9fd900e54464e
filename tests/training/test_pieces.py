"""Pieces of a batch by free memory: as few as fit, more where they do not, and no other result."""

from dataclasses import replace

import pytest
import torch
from lra_sets import write
from safetensors.torch import load_file

from elm_lib.datasets.lra.task import Task
from elm_lib.training import run as trainer
from elm_lib.training.pieces import needed
from elm_lib.training.run import Run, train_run

TRAIN = {"optimizer": "adam", "lr": 1e-2, "batch_size": 12, "epochs": 2, "batches_per_epoch": 5, "clip_grad_norm": None}
GB = 10**9


@pytest.mark.parametrize(
    ("peak", "pieces", "free", "expected"),
    [
        (GB // 10, 32, 80 * GB, 1),  # all at once
        (GB // 10, 32, 3 * GB, 2),
        (GB, 4, GB, 4),  # never more than published
        (GB, 32, 0, 32),
    ],
)
def test_the_fewest_pieces_that_fit(peak, pieces, free, expected):
    assert needed(peak, pieces, free) == expected


def test_pieces_that_do_not_fit_are_halved_and_the_step_is_done_again(tmp_path, monkeypatch):
    write(tmp_path / "lra", "pathfinder", sizes=(24, 4, 5))
    model = {"kind": "elm", "d_m": 4, "tau_m_range": [1, 100]}
    options = {"name": "pathfinder", "dropout": 0.0}
    three = Run("e", "lra", model, TRAIN | {"accumulate": 4}, 3, str(tmp_path / "lra"), str(tmp_path / "four"), options)
    train_run(three)
    loss = Task.loss

    def small_memory(self, model, batch):
        if model.training and len(batch) > 3:
            loss(self, model, batch).backward()  # as far as it came: the gradient is there
            raise torch.OutOfMemoryError("too large")
        return loss(self, model, batch)

    monkeypatch.setattr(Task, "loss", small_memory)
    monkeypatch.setattr(trainer, "fewest", lambda *_: 1)
    auto = replace(three, folder=str(tmp_path / "auto"), accumulate="auto")
    train_run(auto, over=lambda step: step >= 3)
    assert torch.load(tmp_path / "auto/checkpoint.pt", weights_only=True)["progress"]["pieces"] == 4
    monkeypatch.setattr(trainer, "fewest", pytest.fail)  # a run that goes on keeps its pieces
    train_run(auto)
    ours, expected = (load_file(f"{run.folder}/model.safetensors") for run in (auto, three))
    assert all(torch.equal(ours[key], expected[key]) for key in expected)
    with pytest.raises(torch.OutOfMemoryError):  # a number stays what it is
        train_run(replace(three, folder=str(tmp_path / "one"), train=TRAIN))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_with_room_takes_one_piece(tmp_path):
    write(tmp_path / "lra", "pathfinder", sizes=(24, 4, 5))
    options = {"name": "pathfinder", "dropout": 0.0}
    model = {"kind": "elm", "d_m": 4, "tau_m_range": [1, 100]}
    run = Run("e", "lra", model, TRAIN | {"accumulate": 4}, 3, str(tmp_path / "lra"), str(tmp_path / "r"), options)
    train_run(replace(run, device="cuda", accumulate="auto"), over=lambda step: step >= 3)
    assert torch.load(tmp_path / "r/checkpoint.pt", weights_only=True)["progress"]["pieces"] == 1
