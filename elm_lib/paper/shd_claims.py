"""What the paper says in words of the spoken digits, each as a rule over published accuracies and over ours.

Section 4.2, captions of Figures 5, S4 and S5. Two more questions are ours: whether the output of the SNN decays by the
step, and what channels that no branch reads cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elm_lib.experiments.config import Params
from elm_lib.paper.claims import Score, better, claim_row, count
from elm_lib.paper.counts import counts
from elm_lib.paper.pictures import ADDING, published_points, read_off
from elm_lib.paper.points import Runs
from elm_lib.paper.shd import CAPTION, CHANCE, EXPERIMENTS, FIGURES, MODELS, NEAR_CHANCE, TITLES, published, score_of
from elm_lib.paper.verdict import Claim, Verdict

FINE, COARSE, EVERY = (1, 2, 4), (50, 100), (1, 2, 4, 6, 8, 10, 20, 50, 100)  # ms
BELOW_10, SNN_BINS = (1, 2, 4, 6, 8), (10, 20, 50, 100)
RETAINED = 0.05  # accuracy that may be lost by what is said to keep it
HELD_OUT = 0.2  # accuracy that may be lost on speakers who are not in training: published are 0.09 to 0.20
IMPROVED = 0.05  # accuracy, "no significant improvement"
VALID = " on validation words"  # after the name of a model
LITERAL, COVERING = "SNN, output of 20 ms", "Branch-ELM, every channel read"
READING, ROUTING = "SNN reading", "Routing"  # claims of ours; see elm_lib.paper.items
OURS = {LITERAL: "shd_snn_20_ms", COVERING: "shd_branch_elm_covering"}
SWEEPS = ("shd_adding_d_m", "shd_adding_tau_m", "improved_shd_adding_d_m")


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row each claim, and one for the size of the Branch-ELM beside that of the ELM."""
    rows = []
    where: dict[str, Any] = {"dataset": "shd", "profile": profile}
    for name in EXPERIMENTS:
        experiments, theirs, scores = _sides(name)
        for claim in _on(name):
            rows.append(claim_row(FIGURES[name], claim, runs, experiments, theirs, scores, **where))
        rows.append(_third(params, name, profile))
    sweeps, drawn = {name: name for name in SWEEPS}, read_off(params, published_points().query("figure == 'Fig 5'"))
    for label, claim in _ablations(params):
        rows.append(claim_row(label, claim, runs, sweeps, drawn, ADDING, **where))
    experiments, _, scores = _sides("shd")
    for claim in _readings():
        rows.append(claim_row(READING, claim, runs, experiments, {}, scores, **where))
    unseen = Score("test_accuracy_unseen_speakers", limit=scores["ELM"].limit)
    for claim in _routing():
        rows.append(claim_row(ROUTING, claim, runs, experiments, {}, unseen, **where))
    return rows


def _sides(name: str) -> tuple[dict[str, str], dict[tuple[str, Any], float], dict[str, Score]]:
    """Experiment, published accuracy and score by model. Each model occurs a second time, on validation words."""
    experiments = dict(zip(MODELS.values(), EXPERIMENTS[name], strict=True))
    table = published(name).set_index(["model", "bin_ms"])
    theirs = table.test_accuracy_mean.to_dict()
    theirs |= {(model + VALID, b): value for (model, b), value in table.valid_accuracy_mean.items()}
    scores = {model: score_of("test", name) for model in (*experiments, *OURS)}
    scores |= {model + VALID: score_of("valid", name) for model in experiments}
    return experiments | {m + VALID: e for m, e in experiments.items()} | OURS, theirs, scores


def _on(name: str) -> Iterator[Claim]:
    """Claims on a data set, "shd" or "shd_adding"."""
    title, adding = TITLES[name], name == "shd_adding"
    yield better(f"{title}: ELM above LSTM at bins of 1 to 4 ms, by", ("ELM", FINE), ("LSTM", FINE), by_steps=True)
    lost = BELOW_10 if adding else (1, 2)
    says = "below 10 ms" if adding else "of 1 and 2 ms"
    yield better(
        f"{title}: LSTM recovers with coarse bins: its accuracy at 50 and 100 ms above that {says}, by",
        ("LSTM", COARSE),
        ("LSTM", lost),
        by_steps=True,
        learned=(0,),
    )
    yield better(
        f"{title}: LSTM stays below ELM at 50 and 100 ms, by", ("ELM", COARSE), ("LSTM", COARSE), by_steps=True
    )
    yield better(
        f"{title}: Branch-ELM keeps its accuracy at fine bins: that at 1 to 4 ms less that at 10 to 20 ms",
        ("Branch-ELM", FINE),
        ("Branch-ELM", (10, 20)),
        tolerance=RETAINED,
    )
    yield better(
        f"{title}: Branch-ELM keeps up with ELM at fine bins: its accuracy at 1 to 4 ms less that of ELM",
        ("Branch-ELM", FINE),
        ("ELM", FINE),
        tolerance=RETAINED,
    )
    for model in ("ELM",) if adding else ("ELM", "Branch-ELM", "LSTM", "SNN"):
        text = f"{title}: accuracy of {model} falls from bins of 20 ms to 100 ms, by"
        yield better(text, (model, (20,)), (model, (100,)), learned=(0,))
    yield from _held_out() if adding else ()
    if not adding:
        yield better(
            f"{title}: SNN best at bins around 20 ms: its accuracy there above its best at 1 to 8 and at 100 ms, by",
            ("SNN", (20,)),
            ("SNN", (*BELOW_10, 100)),
            over="max",
            learned=(0,),
            by_steps=True,
        )
        return
    for model, bins, over, says in (
        ("LSTM", BELOW_10, "mean", "below 10 ms"),
        ("SNN", SNN_BINS, "max", "at every bin"),
    ):
        text = f"{title}: {model} at chance {says}, and ELM above: chance less its accuracy"
        yield _fails(text, model, "ELM", bins, CHANCE[name], over=over)


def _fails(text: str, fails: str, learns: str, bins: tuple, chance: float, **changes: Any) -> Claim:
    return Claim(
        models=(fails, learns),
        bins=(bins, bins),
        text=text,
        margin=lambda accuracy, _: chance - accuracy,
        tolerance=NEAR_CHANCE,
        says_failure=True,
        by_steps=True,
        **changes,
    )


def _held_out() -> Iterator[Claim]:
    """Four of five words of the test set are by two speakers who are in no other set."""
    yield better(
        "SHD-Adding: ELM on held-out speakers: accuracy on the test set less that on validation words, at every bin",
        ("ELM", EVERY),
        (f"ELM{VALID}", EVERY),
        tolerance=HELD_OUT,
    )
    yield Claim(
        models=("ELM", f"ELM{VALID}", "LSTM", f"LSTM{VALID}"),
        bins=(COARSE,) * 4,
        text="SHD-Adding: ELM loses no more on held-out speakers than LSTM at 50 and 100 ms, by",
        margin=lambda test, valid, lstm_test, lstm_valid: (test - valid) - (lstm_test - lstm_valid),
        tolerance=RETAINED,
        learned=(1, 3),
    )


def _ablations(params: Params) -> Iterator[tuple[str, Claim]]:
    """Figure 5 e and f, and the sentence on e in the caption of Figure S4."""
    d_m, tau_m, improved = SWEEPS
    best = (75, 100, 125)
    text = "e) ELM, 2 ms: accuracy rises to d_m=75 to 125: their mean above that of d_m=10 to 30, by"
    yield "Fig 5", better(text, (d_m, best), (d_m, (10, 15, 20, 30)), learned=(0,))
    text = "e) ELM, 2 ms: larger models become unstable: mean accuracy of d_m=75 to 125 above that of 175 and 250, by"
    yield "Fig 5", better(text, (d_m, best), (d_m, (175, 250)), learned=(0,))
    ranges = {value[-1]: f"[{value[0]}, {value[1]}]" for value in params.experiment(tau_m).values}
    long = tuple(ranges[longest] for longest in (300, 500, 750, 1000))
    text = (
        "f) ELM, 2 ms, timescales of 300 ms and more are needed: mean accuracy with them above that with up to 200, by"
    )
    yield "Fig 5", better(text, (tau_m, long), (tau_m, (ranges[200],)), learned=(0,))
    text = "f) ELM, 2 ms, timescales of 300 ms suffice: accuracy with up to 300 ms less the mean with more"
    yield "Fig 5", better(text, (tau_m, long[:1]), (tau_m, long[1:]), tolerance=RETAINED)
    text = "ELM on SHD-Adding, 2 ms: the improved update is no better: accuracy without it less that with it, at d_m=30"
    sizes = (30, 100, 250)
    yield "Fig S4", better(f"{text}, 100, 250", (d_m, sizes), (improved, sizes), tolerance=IMPROVED, learned=(0,))


def _readings() -> Iterator[Claim]:
    for b in (20, 50, 100):
        text = (
            f"SHD, {b} ms: SNN whose output decays by exp(-{b} ms / 20 ms) a step at chance, and by exp(-1 / 20) above"
        )
        yield _fails(f"{text}: chance less its accuracy", LITERAL, "SNN", (b,), CHANCE["shd"])


def _routing() -> Iterator[Claim]:
    for b in (2, 10):
        text = (
            f"SHD, {b} ms, unseen speakers: Branch-ELM that reads every channel above one that leaves 11 % unread, by"
        )
        yield better(text, (COVERING, (b,)), ("Branch-ELM", (b,)))


def _third(params: Params, name: str, profile: str) -> Verdict:
    """Parameters of the Branch-ELM as a part of those of the ELM, by the caption of Figure 5."""
    models = {"Branch-ELM": f"{name}_branch_elm", "ELM": f"{name}_elm"}
    ours = {m: counts(params, e, params.experiment(e).values[0])[0] for m, e in models.items()}
    return count(
        FIGURES[name],
        "Branch-ELM has a third of the parameters of ELM",
        CAPTION["Branch-ELM"] / CAPTION["ELM"],
        ours["Branch-ELM"] / ours["ELM"],
        0.05,
        profile=profile,
    )
