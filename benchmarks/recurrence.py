"""How long is a training step, forward and backward, and what would others need for it?

    python benchmarks/recurrence.py [--device cpu|cuda] [--rounds 5] [--only neuronio_elm] [--out results/benchmarks]
                                    [--released FOLDER]

For each of the paper's configurations, in one run and interleaved, so that ratios hold on a noisy machine:
(a) `step_loop`, an autograd loop over time in plain torch, as the released code has it (weights derived once, then a
dozen small operations a step); (b) nn.LSTM of the hidden size that the paper gives for the task; (c) nn.LSTM of the
same hidden size as the ELM; (d) the floor: the floating-point operations counted over the rate of a large matrix
product, or the bytes that must move over the memory's bandwidth, whichever takes longer; (e) with --released, the
authors' neuron of the same sizes, from a checkout of their code (github.com/AaronSpieler/elmneuron). Every ratio is
that time over ours: above 1 we are faster, `ratio_floor` is at most 1. Each is run once untimed just before it is
timed, as in training, where a step follows its like.
On the CPU: one thread, CPU time. On a GPU: wall time between synchronisations, TF32 matrix products for all.
Where (a) does not fit, it is timed on fewer steps, and its time and memory are scaled, as they are linear in them
(column `step_loop_steps`).

Rows of recurrence.csv that are not measured again, or were measured on another machine, are kept. Writes
recurrence.csv, .md and .png after each configuration.
"""

import argparse
import ctypes
import gc
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from recurrence_picture import picture  # beside this file
from torch import nn

from elm_lib import ELM, BranchELM
from elm_lib.experiments.work import commit
from elm_lib.kernels.spikes import Spikes
from elm_lib.paper.figures import style
from elm_lib.training.run import device_name

# inputs, spikes a step (0: dense numbers), outputs, LSTM's hidden size in the paper, model, batch and steps on a CPU,
# on a GPU
CONFIGURATIONS = {
    "neuronio_branch_elm": (
        1278,
        14,
        2,
        100,
        lambda: BranchELM(1278, 20, d_o=2, d_tree=45, d_brch=100, batch_first=True),
        (8, 500),
        (8, 500),
    ),
    "neuronio_elm": (1278, 14, 2, 100, lambda: ELM(1278, 20, d_o=2, batch_first=True), (8, 500), (8, 500)),
    "shd": (
        700,
        14,
        20,
        250,
        lambda: BranchELM(700, 100, d_o=20, d_tree=100, d_brch=15, routing="random", batch_first=True),
        (8, 500),
        (8, 500),
    ),
    "pathfinder": (
        16,
        0,
        2,
        150,
        lambda: ELM(16, 150, d_o=2, tau_m_range=(1, 1000), tau_m_bounds=(0, 2000), batch_first=True),
        (32, 1024),
        (384, 1024),
    ),
    "pathfinder_x": (
        8,
        0,
        2,
        150,
        lambda: ELM(
            8,
            150,
            d_o=2,
            tau_m_range=(1, 2e4),
            tau_m_bounds=(0, 4e4),
            tau_s=150.0,
            checkpoint_steps=1024,
            batch_first=True,
        ),
        (2, 16384),
        (768, 16384),
    ),
}
LOOP_STEPS = 512  # of the step loop where all do not fit
COLUMNS = [
    "configuration",
    "engine",
    "input",
    "device",
    "threads",
    "batch",
    "steps",
    "ms_median",
    "ms_spread",
    "ratio_step_loop",
    "ratio_lstm_paper",
    "ratio_lstm_same",
    "ratio_floor",
    "peak_mb",
    "d_m",
    "step_loop_steps",
    "machine",
    "commit",
]
GROWTH = {"steps": (125, 500, 2000), "batch": (1, 8, 32, 128), "d_m": (10, 20, 50, 100)}


def step_loop(model: ELM, x):
    """The neuron as a Python loop under autograd: x (B, T, inputs) -> (B, T, d_o)."""
    p, w_s = model.step_parameters(), model.w_s
    branches = isinstance(model, BranchELM)
    s, m = x.new_zeros(x.shape[0], model.n_trace), x.new_zeros(x.shape[0], model.d_m)
    outputs = []
    for x_t in x.unbind(1):
        drive = x_t[:, model.routing_index] * w_s if branches else x_t * w_s
        s = p.kappa_s * s + (drive.view(len(x), model.d_tree, model.d_brch).sum(-1) if branches else drive)
        u = p.kappa_m * m
        hidden = torch.relu(model.mlp[0](torch.cat([s, u], -1)))
        m = u + p.gain * (p.a * torch.tanh(p.b * model.mlp[1](hidden)))
        outputs.append(model.w_y(m))
    return torch.stack(outputs, 1)


def make_input(inputs: int, spikes: int, batch: int, steps: int, device: str):
    """Sparse and dense input of the same content; dense alone where it is numbers."""
    generator = torch.Generator().manual_seed(0)
    if not spikes:
        return None, torch.randn(batch, steps, inputs, generator=generator).to(device)
    drawn = torch.rand(batch * steps, inputs, generator=generator) < spikes / inputs
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), drawn.sum(1).cumsum(0)])
    channel = drawn.nonzero()[:, 1].contiguous()
    x = Spikes(row_ptr, channel, torch.ones(len(channel)), (batch, steps, inputs))
    x = Spikes(*(t.to(device) for t in x[:3]), x.shape)
    return x, x.dense()


def released(folder: Path, model: ELM) -> nn.Module:
    """The authors' neuron of the same sizes, from a checkout of their code."""
    sys.path.insert(0, str(folder))
    from src.expressive_leaky_memory_neuron import ELM as Theirs

    sizes = {}
    if isinstance(model, BranchELM):
        routing = "random_routing" if model.routing == "random" else "neuronio_routing"
        sizes = {"num_branch": model.d_tree, "num_synapse_per_branch": model.d_brch}
        sizes |= {"input_to_synapse_routing": routing}
    return Theirs(
        model.input_size,
        model.w_y.out_features,
        model.d_m,
        mlp_hidden_size=model.mlp[0].out_features,
        learn_memory_tau=True,
        **sizes,
    )


def training_step(model: nn.Module, forward):
    """What is timed: forward, backward."""
    for parameter in model.parameters():
        parameter.grad = None
    y = forward()
    (y if isinstance(y, torch.Tensor) else y[0]).square().sum().backward()


class LSTM(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.lstm, self.w_y = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.w_y(self.lstm(x)[0])


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def timed(action, device: str) -> float:
    action()  # what ran before has taken the caches
    start = clock(device)
    action()
    return 1e3 * (clock(device) - start)


def machine_rates(device: str) -> tuple[float, float]:
    """Rates a second, best of several: floating-point operations of a large float32 product, and bytes of a copy."""
    n = 4096 if device == "cuda" else 1024
    a = torch.randn(n, n, device=device)
    product = min(timed(lambda: a @ a, device) for _ in range(8)) / 1e3
    big = torch.empty(1 << (30 if device == "cuda" else 26), dtype=torch.uint8, device=device)
    other = torch.zeros_like(big)
    copy = min(timed(lambda: other.copy_(big), device) for _ in range(8)) / 1e3
    return 2 * n**3 / product, 2 * big.numel() / copy


def floor_ms(model: ELM, sparse, dense, rates) -> float:
    """Least time for a step: products forward and twice backward (once for the input, which needs no gradient), and one
    pass over input, memory and its gradient."""
    batch, steps, inputs = dense.shape
    d_1 = model.mlp[0].out_features
    rows = batch * steps
    fed = len(sparse.channel) / rows if sparse is not None else inputs
    flops = 2 * rows * (2 * fed * d_1 + 3 * model.d_m * (2 * d_1 + model.w_y.out_features))
    moved = 4 * rows * (fed + 2 * d_1 + 3 * model.d_m)
    return 1e3 * max(flops / rates[0], moved / rates[1])


def contenders(name: str, device: str, batch=None, steps=None, d_m=None, theirs: Path | None = None):
    """name of each contender -> the step that is timed; and the floor's ingredients."""
    inputs, spikes, outputs, hidden, make, on_cpu, on_gpu = CONFIGURATIONS[name]
    default = on_gpu if device == "cuda" else on_cpu
    batch, steps = batch or default[0], steps or default[1]
    torch.manual_seed(0)
    if d_m is None:
        model = make()
    else:
        model = BranchELM(inputs, d_m, d_o=outputs, d_tree=45, d_brch=100, batch_first=True)
    model = model.to(device)
    sparse, dense = make_input(inputs, spikes, batch, steps, device)
    few = min(steps, LOOP_STEPS) if batch * steps > 1 << 16 else steps
    actions = {}
    engines = ["cuda", "torch"] if device == "cuda" else ["cpu", "torch"]
    for engine in engines:
        if engine == "torch" and device == "cuda" and batch * steps > 1 << 16:
            continue  # thousands of launches
        for kind, x in (("spikes", sparse), ("dense", dense)):
            if x is not None:

                def action(x=x, engine=engine):
                    model.engine = engine
                    training_step(model, lambda: model(x))

                actions[engine, kind] = action
    actions["step_loop", "dense"] = lambda: training_step(model, lambda: step_loop(model, dense[:, :few]))
    for label, size in (("lstm_paper", hidden), ("lstm_same", model.d_m)):
        lstm = LSTM(inputs, size, outputs).to(device)
        actions[label, "dense"] = lambda lstm=lstm: training_step(lstm, lambda: lstm(dense))
    if theirs:
        neuron = released(theirs, model).to(device)
        actions["released", "dense"] = lambda: training_step(neuron, lambda: neuron(dense[:, :few]))
    return model, sparse, dense, actions, few


def measure(name: str, device: str, rounds: int, rates, **size) -> list[dict]:
    model, sparse, dense, actions, few = contenders(name, device, **size)
    batch, steps, _ = dense.shape
    times = {}
    for key, action in actions.items():  # compile, allocate
        try:
            action()
            times[key] = []
        except torch.cuda.OutOfMemoryError:
            print(f"{name}: {key} does not fit", flush=True)
            model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
    for _ in range(rounds):
        for key in times:
            times[key].append(timed(actions[key], device))
    scale = {(engine, "dense"): steps / few for engine in ("step_loop", "released")}
    times = {key: np.array(values) * scale.get(key, 1) for key, values in times.items()}
    floor = floor_ms(model, sparse, dense, rates)
    rows = []
    for (engine, kind), values in times.items():
        median = float(np.median(values))

        def ratio(label, values=values):
            other = times.get((label, "dense"))
            return float(np.median(other / values)) if other is not None else np.nan

        rows.append(
            {
                "configuration": name,
                "engine": engine,
                "input": kind,
                "device": device,
                "threads": torch.get_num_threads(),
                "batch": batch,
                "steps": steps,
                "ms_median": median,
                "ms_spread": float(np.percentile(values, 90) - np.percentile(values, 10)),
                "ratio_step_loop": ratio("step_loop"),
                "ratio_lstm_paper": ratio("lstm_paper"),
                "ratio_lstm_same": ratio("lstm_same"),
                "ratio_floor": floor / median,
                "peak_mb": peak_mb(name, engine, kind, device, actions, size) * scale.get((engine, kind), 1),
                "d_m": model.d_m,
                "step_loop_steps": few,
                "machine": device_name(device),
                "commit": commit(),
            }
        )
        print(
            {
                k: (round(v, 3) if isinstance(v, float) else v)
                for k, v in rows[-1].items()
                if k not in ("machine", "commit")
            },
            flush=True,
        )
    return rows


def peak_mb(name, engine, kind, device, actions, size) -> float:
    """What one step adds to the memory in use: on a GPU by its allocator, on a CPU by a process of its own."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        actions[engine, kind]()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    arguments = [f"{k}={v}" for k, v in size.items() if v is not None]
    done = subprocess.run(
        [sys.executable, __file__, "--peak", name, engine, kind, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def print_peak(name, engine, kind, *size) -> None:
    *_, actions, _ = contenders(
        name, "cpu", **{k: Path(v) if k == "theirs" else int(v) for k, v in (s.split("=", 1) for s in size)}
    )
    actions[engine, kind]()  # loads and compiles
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    before = peak_rss_kb(reset=True)
    actions[engine, kind]()
    print((peak_rss_kb() - before) / 1e3)


def peak_rss_kb(reset: bool = False) -> int:
    """Most memory this process has held at once, kB, since the last reset (Linux; elsewhere since its start)."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _is_paper_size(row: pd.Series) -> bool:
    """Not a row of the growth over steps, batch or d_m."""
    *_, on_cpu, on_gpu = CONFIGURATIONS[row.configuration]
    grown = row.configuration == "neuronio_branch_elm" and row.d_m != 20
    return (row.batch, row.steps) == (on_gpu if row.device == "cuda" else on_cpu) and not grown


def _short(machine: str) -> str:
    """The first words of a processor's name."""
    return " ".join(machine.removeprefix("CPU: ").replace("(R)", "").split()[:2])


def save(table: pd.DataFrame, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "recurrence.csv"
    if path.exists():
        old, what = pd.read_csv(path), ["device", "machine", "configuration", "batch", "steps", "d_m"]
        again = pd.MultiIndex.from_frame(old[what]).isin(pd.MultiIndex.from_frame(table[what]))
        table = pd.concat([old[~again], table])[COLUMNS]
    table = table.sort_values(["device", "machine", "configuration", "batch", "steps", "d_m"], kind="stable")
    table.to_csv(path, index=False, float_format="%.4g")
    shown = table.drop(columns=["commit", "step_loop_steps"]).map(lambda v: f"{v:.3g}" if isinstance(v, float) else v)
    lines = [
        " | ".join(map(str, row)) for row in (shown.columns, ["---"] * shown.shape[1], *shown.itertuples(index=False))
    ]
    machines = "; ".join(f"{name} at commit {', '.join(of.commit.unique())}" for name, of in table.groupby("machine"))
    (out / "recurrence.md").write_text(
        f"A training step, forward and backward, float32. Machines: {machines}. Ratios: their time over ours, "
        "medians of interleaved rounds.\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"
    )
    style.use()
    figure = picture(table[table.apply(_is_paper_size, axis=1)], _short)
    figure.savefig(out / "recurrence.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CONFIGURATIONS))
    parser.add_argument(
        "--growth",
        choices=("yes", "no", "only"),
        default="yes",
        help="over steps, batch and d_m of neuronio_branch_elm",
    )
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--released", type=Path, help="a checkout of the authors' code, timed beside ours")
    parser.add_argument("--peak", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if arguments.device == "cuda" else "highest")
    if arguments.peak:
        print_peak(*arguments.peak)
        return
    rates = machine_rates(arguments.device)
    print(f"{rates[0] / 1e9:.0f} GFLOP/s, {rates[1] / 1e9:.1f} GB/s", flush=True)
    todo = [(name, arguments.rounds, {}) for name in arguments.only if arguments.growth != "only"]
    if arguments.growth != "no" and "neuronio_branch_elm" in arguments.only:
        usual = {"steps": 500, "batch": 8, "d_m": 20}
        todo += [
            ("neuronio_branch_elm", 3, {what: value})
            for what in GROWTH
            for value in GROWTH[what]
            if value != usual[what]
        ]
    for name, rounds, size in todo:
        rows = measure(name, arguments.device, rounds, rates, theirs=arguments.released, **size)
        save(pd.DataFrame(rows)[COLUMNS], arguments.out)
        if arguments.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
