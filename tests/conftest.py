import os
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported: its kernels run in Python

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Optional folder of reference data (released weights, simulator traces): ELM_SHARED, or ../shared beside the project."""
    folder = Path(os.environ.get("ELM_SHARED", ROOT.parent / "shared"))
    if not (folder / "official").is_dir():
        pytest.skip(f"no reference data at {folder}: set ELM_SHARED")
    return folder


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(0)
    torch.set_num_threads(1)
