"""One look for every figure, and files that do not differ between two runs."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

# the paper's colours
COLORS = {
    "ELM": "#0173b2",
    "Branch-ELM": "#56b4e9",
    "LSTM": "#de8f05",
    "TCN": "#d55e00",
    "SNN": "#cc3311",
    "target": "#222222",
    "excitatory": "#d55e00",
    "inhibitory": "#0173b2",
}
FORMATS = ("pdf", "png", "svg")


def use() -> None:
    """Set matplotlib up: sizes as printed (inches, points), fixed metadata."""
    matplotlib.rcParams.update(
        {
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "legend.fontsize": 7,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.dpi": 110,
            "savefig.dpi": 200,
            "savefig.bbox": "tight",
            "lines.linewidth": 1.2,
            "lines.markersize": 4,
            "svg.hashsalt": "elm",
            "pdf.fonttype": 42,
            "legend.frameon": False,
        }
    )


def save(figure, folder: str | Path, name: str) -> list[Path]:
    """Write figure as pdf, png and svg; no dates, no versions inside. Returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in FORMATS:
        metadata = {
            "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
            "png": {"Software": None},
            "svg": {"Date": None, "Creator": None},
        }[form]
        figure.savefig(folder / f"{name}.{form}", metadata=metadata)
        paths.append(folder / f"{name}.{form}")
    svg = folder / f"{name}.svg"
    svg.write_text(number_ids(svg.read_text()))
    return paths


def number_ids(svg: str) -> str:
    """Clip paths and markers named by their order: matplotlib names them by a hash of coordinates, and a layout's last bit,
    which no printed digit shows, can differ between two runs."""
    found: dict[str, str] = {}

    def numbered(match: re.Match) -> str:
        return match["before"] + found.setdefault(match["id"], f"{match['kind']}_{len(found) + 1}")

    return re.sub(r'(?P<before>\bid="|#)(?P<id>(?P<kind>image|[mp])[0-9a-f]{10})\b', numbered, svg)
