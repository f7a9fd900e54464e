"""Small archives of exactly the published formats of the Long Range Arena, IMDB and CIFAR-10."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from neuronio_pickles import python2_dumps
from PIL import Image

LISTOPS = {
    "train": [("( ( ( [MAX 4 ) ( ( ( [MIN 2 ) 3 ) ] ) ) ] )", 4), ("( ( ( [SM 7 ) 8 ) ] )", 5), ("( ( ( [MED 7 ) 8 ) ] )", 7)],
    "val": [("( ( ( [MED 1 ) 2 ) ] )", 1)],
    "test": [("( ( ( [MIN 9 ) 3 ) ] )", 3)],
}  # fmt: skip
PAIRS = {
    "train": [("1.0", "a", "b", b'We "show"  that.', b"See [1]~!"), ("0.0", "c", "d", b"caf\xc3\xa9", b"x" * 50)],
    "eval": [("1.0", "a", "c", b"p", b"q")],
    "test": [("0.0", "b", "c", b"r", b"s")],
}


def _tar(path: Path, content: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def release_content(n_pictures: int = 20) -> dict[str, bytes]:
    """Members of lra_release.gz. Picture i of size s is grey value 8 i + 1 throughout, its label i % 2."""
    root = "lra_release/lra_release/"
    content = {root + "README": b"not data"}
    for split, rows in LISTOPS.items():
        lines = ["Source\tTarget", *(f"{source}\t{target}" for source, target in rows)]
        content[f"{root}listops-1000/basic_{split}.tsv"] = "\n".join(lines).encode() + b"\n"
    for split, rows in PAIRS.items():
        lines = [b"\t".join([*(word.encode() for word in row[:3]), *row[3:]]) for row in rows]
        content[f"{root}tsv_data/new_aan_pairs.{split}.tsv"] = b"\n".join(lines) + b"\n"
    for size in (32, 128):
        folder = f"{root}pathfinder{size}/curv_contour_length_14/"
        content[f"{root}pathfinder{size}/curv_baseline/imgs/0/sample_0.png"] = b"another difficulty"
        lines = []
        for i in range(n_pictures):
            batch, file = f"imgs/{i % 2}", f"sample_{i // 2}.png"
            picture = io.BytesIO()
            Image.fromarray(np.full((size, size), 8 * i + 1, np.uint8)).save(picture, "png")
            content[f"{folder}{batch}/{file}"] = picture.getvalue()
            lines.append((i % 2, f"{batch} {file} {i} {i % 2} 1.0 14 4 2 0.5 1 1"))
        for batch in (0, 1):
            rows = [line for where, line in lines if where == batch]
            content[f"{folder}metadata/{batch}.npy"] = "\n".join(rows).encode() + b"\n"
    return content


def imdb_content(n: int = 20) -> dict[str, bytes]:
    content = {"aclImdb/README": b"not data", "aclImdb/train/unsup/0_0.txt": b"no label"}
    for split in ("train", "test"):
        for name in ("pos", "neg"):
            for i in range(n // 2):
                content[f"aclImdb/{split}/{name}/{i}_7.txt"] = f"{split} {name} {i}<br />\u00e9".encode() * 3
    return content


def cifar_content(n: int = 10) -> dict[str, bytes]:
    """n pictures a batch, as Python 2 pickled them; picture i of batch k is colour (10 k, i, 200), its label i."""
    content = {"cifar-10-batches-py/batches.meta": python2_dumps({"label_names": ["airplane"]})}
    for k, name in enumerate([*(f"data_batch_{j}" for j in range(1, 6)), "test_batch"]):
        data = np.zeros((n, 3, 1024), np.uint8)
        data[:, 0], data[:, 1], data[:, 2] = 10 * k, np.arange(n)[:, None], 200
        batch = {
            "batch_label": name,
            "labels": list(range(n)),
            "data": data.reshape(n, 3072),
            "filenames": ["a.png"] * n,
        }
        content[f"cifar-10-batches-py/{name}"] = python2_dumps(batch)
    return content


def write_archives(folder: Path) -> Path:
    """lra_release.gz, aclImdb_v1.tar.gz, cifar-10-python.tar.gz in a folder; returns it."""
    _tar(folder / "lra_release.gz", release_content())
    _tar(folder / "aclImdb_v1.tar.gz", imdb_content())
    _tar(folder / "cifar-10-python.tar.gz", cifar_content())
    return folder


def write_release(path: Path, content: dict[str, bytes]) -> Path:
    return _tar(path, content)
