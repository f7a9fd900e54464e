"""What the three download notebooks do."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from elm_lib.experiments import config
from elm_lib.support.files import write_json


def download(name: str, profile: str, raw: str | Path, params_file: str | Path) -> dict[str, Any]:
    """Fetch what a data set is made of into `raw`, and write raw/<name>_<profile>.json for the next stage.

    name  neuronio, shd or lra
    Returns what that file holds: names and checksums, no paths on this machine. Raises ConfigError for a fault in
    params_file, DataError for a file that is not what it should be or cannot be had.
    """
    raw = Path(raw)
    wanted = getattr(config.load(params_file).profiles[profile], name)
    sources = import_module(f"elm_lib.datasets.{name}.prepare").fetch(wanted, raw=raw)
    write_json(raw / f"{name}_{profile}.json", sources)
    return sources
