import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from safetensors.torch import load_file

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported: its kernels run in Python

from elm_lib.training.run import train_run

ROOT = Path(__file__).resolve().parents[1]

# no test fails because the machine is busy
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    """The longest file first: another process does the others meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Optional folder of reference data: the authors' released weights, and traces of simulators.

    It is the folder that the environment variable ELM_SHARED names, or ../shared beside the project.
    """
    folder = Path(os.environ.get("ELM_SHARED", ROOT.parent / "shared"))
    if not (folder / "official").is_dir():
        pytest.skip(
            f"no released weights at {folder / 'official'}: copy their folders (num_memory_1, ..) from "
            "github.com/AaronSpieler/elmneuron, and set ELM_SHARED to the folder that holds official/"
        )
    return folder


@pytest.fixture
def killed_as_whole():
    """check(whole, killed, *at): two runs alike, the second killed after each of these steps and resumed: the same
    weights, curve and scores, which it returns."""

    def check(whole, killed, *at: int) -> dict:
        train_run(whole)
        for last in at:
            train_run(killed, stop=lambda step, last=last: step >= last)
            assert not killed.result.exists()
        train_run(killed)
        ours, expected = (load_file(Path(run.folder) / "model.safetensors") for run in (killed, whole))
        assert set(ours) == set(expected)
        assert all(torch.equal(ours[key], expected[key]) for key in expected)
        curves = [(Path(run.folder) / "curve.csv").read_text() for run in (whole, killed)]
        assert curves[0] == curves[1]
        results = [json.loads(run.result.read_text())["result"] for run in (whole, killed)]
        assert results[0] == results[1]
        return results[0]

    return check


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(0)
    torch.set_num_threads(1)
