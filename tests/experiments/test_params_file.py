"""params.yaml as somebody might write it: one line with the file and what would be right, before anything is done."""

import re
from pathlib import Path

import pytest
import torch

from elm_lib.experiments import config
from elm_lib.experiments.__main__ import main
from elm_lib.support import plain_yaml
from elm_lib.support.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "params.yaml").read_text()


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        config.load(path)
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.removeprefix(str(path))


# former text -> other text -> what the line says
CHANGES = [
    ("lr: 5.0e-4", "lr: .inf", r"neuronio\.shared\.train\.lr = inf: .*finite"),
    ("lr: 5.0e-4", "lr: true", r"neuronio\.shared\.train\.lr = True"),
    ("lr: 5.0e-4", "lr: 5e-4", r", line \d+: 5e-4 means one thing to this reader .* DVC: write 5\.0e-4$"),
    ("clip_grad_norm: null", "clip_grad_norm: .inf", r"train\.clip_grad_norm = inf"),
    ("epochs: 30,", "epochs: 030,", r", line \d+: 030 means .*: write 30 without the zero in front"),
    ("epochs: 30,", "epochs: 1_0,", r", line \d+: 1_0 means"),
    ("epochs: 30,", "epochs: 1:30,", r", line \d+: 1:30 means"),
    ("epochs: 30,", "epochs: 1000000000000,", r"train\.epochs = 1000000000000"),
    ("epochs: 30,", "epochs: 30, epochs: 40,", r", line \d+: the key 'epochs' stands twice, first in line \d+:"),
    ("fresh: false", "fresh: no", r", line \d+: no means .*: write true, false, or 'no' for a text"),
    ("window_ms: 500", "window_ms: true", r"neuronio_branch_elm at d_m = 10: task\.window_ms = True"),
    ("window_ms: 500", "window_ms: 500, windows: 2", r"neuronio_branch_elm at .*: task: \['windows'\] is unknown: the"),
    ("window_ms: 500, ", "", r"task: \['window_ms'\] is missing"),
    ("lambda_: 10.0", "lambda_: true", r"neuronio_branch_elm at d_m = 10: model\.lambda_ = True"),
    ("w_s: 0.5", "w_s: 0.5, activation: gelu", r"activation='gelu': choose one of"),
    ("w_s: 0.5", "w_s: 0.5, learn_tau_m: 3", r"model\.learn_tau_m = 3"),
    ("tau_m_bounds: [0, 500]", "tau_m_bounds: [500]", r"model\.tau_m_bounds = \[500\]"),
    ("tau_m_bounds: [0, 500]", "tau_m_bounds: [9, 3]", r"neuronio\.neuronio_branch_elm at d_m = 10: .*bounds"),
    ("routing: neighbourhood", "routing: neighbourhood, branch_activation: x", r"branch_activation='x': choose one of"),
    ("kind: lstm", "kind: gru", r"neuronio_lstm at hidden_size = 2: model\.kind = 'gru': choose one of \['branch_elm'"),
    ("    neuronio_elm:\n", "    ../../evil:\n", r"experiments: '\.\./\.\./evil' names files and folders"),
    ("simulations: 4,", "simulations: 1000000000000,", r"simulations = 1000000000000"),
    ("threads: 1", "threads: 1000000", r"runner\.threads = 1000000"),
]  # fmt: skip


@pytest.mark.parametrize(("former", "other", "line"), CHANGES, ids=[other.strip() for _, other, _ in CHANGES])
def test_a_slip_is_one_line(tmp_path, former, other, line):
    assert former in TEXT
    path = tmp_path / "params.yaml"
    path.write_text(TEXT.replace(former, other, 1))
    said = refused(path)
    assert re.search(line, said), said


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (TEXT.encode("utf-16"), "byte 0 is not UTF-8: save the file as UTF-8"),
        ("# für alle\n".encode("latin-1") + TEXT.encode(), "byte 3 is not UTF-8"),
        (b"\0" * 100, "is not YAML"),
        (b"a: &a [*a]\n", "recursive"),
        (b"b: {? [1] : 2}", "the key [1] is no name"),
        (b"- 1\n", "dictionary"),
    ],
)
def test_another_kind_of_file_is_one_line(tmp_path, content, line):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    assert line in refused(path)


def test_what_every_reader_takes_for_the_same_is_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 5.0e-4\nb: [1, -2, 0, .inf]\nc: 'no'\nd: \"030\"\ne: true\nf: x\ng: null\n")
    assert plain_yaml.read(path) == {
        "a": 5e-4, "b": [1, -2, 0, float("inf")], "c": "no", "d": "030", "e": True, "f": "x", "g": None
    }  # fmt: skip


def test_loading_leaves_random_numbers_as_they_are():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    config.load(ROOT / "params.yaml")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("slurm", "line"),
    [
        ("{slurm_partitoin: gpu}", "slurm.slurm_partitoin is no option of submitit: .* it may be slurm_partition"),
        ("{timeout_min: long}", "slurm.timeout_min = 'long': must be of type int"),
        ("{timeout_min: -5}", "slurm.timeout_min = -5: must be above 0"),
        ("{cpus_per_task: 4}", "slurm.cpus_per_task: give `threads`, `jobs` or `timeout_min` instead"),
        ("{tasks_per_node: 2}", "slurm.tasks_per_node = 2: a job is one task on one node"),
        ("{timeout_min: 2}", r"slurm.timeout_min = 2: Slurm may signal a job 150 s before its end .*: give 3 or more"),
        ("{timeout_min: 10, slurm_signal_delay_s: 600}", "slurm.timeout_min = 10: .* give 12 or more"),
        ("{slurm_signal_delay_s: 9.5}", "slurm.slurm_signal_delay_s = 9.5: must be of type int"),
        ("{}, runs_per_job: 4", "runs_per_job and stage_to are for cluster: slurm"),
        ("{}, accumulate: 4", "accumulate"),
    ],
)
def test_options_of_slurm_are_checked_at_loading(tmp_path, slurm, line):
    path = tmp_path / "params.yaml"
    path.write_text(re.sub(r"(cluster: \w+, jobs: \d+, threads: \d+)", rf"\1, slurm: {slurm}", TEXT, count=1))
    said = refused(path)
    assert re.search(line, said), said


@pytest.mark.parametrize("words", [["--minutes", "-5"], ["--minutes", "inf"], ["--jobs", "0"]])
def test_time_and_jobs_of_the_command_are_numbers_that_can_be(words, capsys):
    with pytest.raises(SystemExit):
        main(["desk", *words])
    assert re.search(rf"argument {words[0]}: {words[1]}: give", capsys.readouterr().err)
