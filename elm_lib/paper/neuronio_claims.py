"""What the paper says in words of its sweeps on NeuronIO, each as a rule over published points and over ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elm_lib.experiments.config import Params
from elm_lib.paper.claims import better, claim_row, not_run
from elm_lib.paper.neuronio import AUC, published_neuronio
from elm_lib.paper.pictures import BRANCHES, CONSTANT, LONGEST, published_points, read_off
from elm_lib.paper.points import Runs, fullest, table_of
from elm_lib.paper.points import origin as origin_of
from elm_lib.paper.verdict import Claim, Verdict, judge

SIZES = (10, 15, 20, 25, 30, 40, 50)  # memory units of Figure S6
# panels of Figure S4: the improved memory update, and the original one on the same points
STABLE = (
    ("a", "improved_branch_elm_tau_m_max", "branch_elm_tau_m_max"),
    ("b", "improved_elm_tau_m_constant", "elm_tau_m_constant"),
    ("c", "improved_branch_elm_lambda", "branch_elm_lambda"),
    ("d", "improved_branch_elm_d_m", "neuronio_branch_elm"),
)
SLIGHT = 0.0005  # AUC; what counts as a gain, removing the hidden layer for one, is ten times as much


def verdicts(runs: Runs, params: Params, profile: str) -> list[Verdict]:
    """A row each claim."""
    published = _published(params)
    experiments = {name: name for name, _ in published}
    where: dict[str, Any] = {"dataset": "neuronio", "profile": profile}
    rows = [claim_row(label, claim, runs, experiments, published, AUC, **where) for label, claim in _claims(params)]
    return [*rows, *(_stable(runs, profile, *panel) for panel in STABLE)]


def _stable(runs: Runs, profile: str, panel: str, improved: str, original: str) -> Verdict:
    """That no run of the improved memory update diverges, beside how many of the original do."""
    item = f"{panel}) runs that diverge with the improved memory update"
    with_it, without = (fullest(table_of(runs, name)) for name in (improved, original))
    if not len(with_it):
        return not_run("Fig S4", item, 0, profile=profile)
    origin, diverged = origin_of(with_it), int(with_it.diverged.astype(bool).sum())
    others = int(without.diverged.astype(bool).sum())
    likeness = origin.likeness("neuronio")
    return Verdict(
        claim="Fig S4",
        item=item,
        verdict=judge(distance=-diverged, error=None, budget=origin.budget, likeness=likeness, comparison=True),
        origin=origin,
        published=0,
        ours=diverged,
        tolerance=0,
        note=f"of {len(with_it)} runs; with the original update {others} of {len(without)} diverge",
    )


def _published(params: Params) -> dict[tuple[str, Any], float]:
    """Published AUC by (our experiment, size)."""
    sizes = published_neuronio().query("model == 'Branch-ELM'").set_index("size").spike_auc_mean
    found: dict[tuple[str, Any], float] = {("neuronio_branch_elm", size): value for size, value in sizes.items()}
    return found | read_off(params, published_points().query("score == 'auc'"))


def _claims(params: Params) -> Iterator[tuple[str, Claim]]:
    for figure, prefix, model in (("Fig 3", "elm", "ELM"), ("Fig S3", "branch_elm", "Branch-ELM")):
        for claim in _needs(params, prefix, model):
            yield figure, claim
    for name, experiment in BRANCHES.items():
        text = f"AUC of the default above that with {name}, by"
        yield "Fig S6", better(text, ("neuronio_branch_elm", SIZES), (experiment, SIZES))
    names = {experiment: name for name, experiment in BRANCHES.items()}
    for worse in ("branch_elm_random", "branch_elm_fixed_w_s"):
        for changed in ("branch_elm_relu", "branch_elm_sigmoid"):
            text = f"AUC with {names[changed]} above that with {names[worse]}, by"
            yield "Fig S6", better(text, (changed, SIZES), (worse, SIZES))


def _needs(params: Params, prefix: str, model: str) -> Iterator[Claim]:
    """Panels a to f of Figures 3 and S3."""

    def name(what: str) -> str:
        return f"{prefix}_{what}"

    longest, constant = ({t: size(params, t) for t in (5, 10, 25, 150)} for size in (LONGEST, CONSTANT))
    yield better(
        f"a) {model} needs 10 to 20 memory units: AUC at d_m=20 above that at 10, by",
        (name("d_m"), (20,)),
        (name("d_m"), (10,)),
    )
    yield _suffices(f"a) {model}, 20 memory units suffice: AUC at d_m=20 less that at 80", name("d_m"), 20, 80)
    yield better(f"b) {model}: a hidden layer raises AUC, by", (name("d_mlp"), (40,)), (name("l_mlp"), (0,)))
    yield better(
        f"c) {model}: lambda above 3 is needed: AUC at lambda=5 above that at 2, by",
        (name("lambda"), (5,)),
        (name("lambda"), (2,)),
    )
    yield better(
        f"d) {model} needs timescales above 10 ms: AUC with up to 25 ms above that with up to 10, by",
        (name("tau_m_max"), (longest[25],)),
        (name("tau_m_max"), (longest[10],)),
    )
    yield _suffices(
        f"d) {model}, timescales up to 25 ms suffice: AUC with them less that with up to 150 ms",
        name("tau_m_max"),
        longest[25],
        longest[150],
    )
    yield better(
        f"e) {model}: one timescale of 25 ms above one of 5 ms in AUC, by",
        (name("tau_m_constant"), (constant[25],)),
        (name("tau_m_constant"), (constant[5],)),
    )


def _suffices(text: str, experiment: str, enough: Any, more: Any) -> Claim:
    """That a larger size adds no more than `SLIGHT`."""
    return Claim(
        models=(experiment, experiment),
        bins=((enough,), (more,)),
        text=f"{text}, at least -{SLIGHT}",
        margin=lambda less, most: less - most,
        tolerance=SLIGHT,
    )
