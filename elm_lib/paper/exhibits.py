"""Each figure and table of the paper: what the paper claims with it, what its picture shows, what makes it.

The order is that of the paper's source.
"""

from __future__ import annotations

from dataclasses import dataclass

DATASETS = {
    "neuronio": "NeuronIO",
    "shd": "SHD",
    "shd_adding": "SHD-Adding",
    "lra": "Long Range Arena",
}
# equation 1 in the colours of the paper: memory blue, synapses green, what is taken up orange, output purple
MEMORY, SYNAPSE, UPDATE, OUTPUT = "#0173b2", "#029e73", "#b35c00", "#8a4d8f"


def _in(colour: str, symbol: str) -> str:
    return rf"\textcolor{{{colour}}}{{{symbol}}}"


def _equation() -> str:
    kappa_m, tau_m, before, m_t = (_in(MEMORY, name) for name in (r"\kappa_m", r"\tau_m", "m_{t-1}", "m_t"))
    names = (r"\kappa_s", r"\tau_s", "s_{t-1}", "s_t", "w_s")
    kappa_s, tau_s, s_before, s_t, w_s = (_in(SYNAPSE, name) for name in names)
    w_p, scale, change = (_in(UPDATE, name) for name in ("w_p", r"\lambda", r"\Delta m_t"))
    lines = [
        rf"{kappa_m} = \exp(-\Delta t / {tau_m}), \quad {kappa_s} = \exp(-\Delta t / {tau_s})",
        rf"{s_t} = {kappa_s} \odot {s_before} + {w_s} \odot x_t",
        rf"{change} = \tanh(\mathrm{{MLP}}_{{{w_p}}}([{s_t}, {kappa_m} \odot {before}]))",
        rf"{m_t} = {kappa_m} \odot {before} + {scale} (1 - {kappa_m}) \odot {change}",
        rf"{_in(OUTPUT, 'y_t')} = {_in(OUTPUT, 'w_y')} \cdot {m_t}",
    ]
    return "\n\n".join(f"$${line}$$" for line in lines)


EQUATION = _equation()


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """What stands beside a figure or table on the report page.

    claim        what the paper says with it, in our words; Markdown with formulas in $
    picture      what the picture or table shows, for who does not see it
    stage        of dvc.yaml, whose notebook has the same name
    function     what draws it, below elm_lib.paper
    dataset      key of `DATASETS`; empty where it needs no data
    experiments  of params.yaml whose runs it shows
    one_run      it shows the one run whose simulation the ledger keeps
    """

    claim: str
    picture: str
    stage: str
    function: str
    dataset: str = ""
    experiments: tuple[str, ...] = ()
    one_run: bool = False

    @property
    def notebook(self) -> str:
        return f"notebooks/{self.stage}.ipynb"


def _neuronio(function: str, *experiments: str, claim: str, picture: str, stage: str = "figures_neuronio") -> Exhibit:
    return Exhibit(
        claim=claim, picture=picture, stage=stage, function=function, dataset="neuronio", experiments=experiments
    )


def _digits(function: str, dataset: str, *more: str, claim: str, picture: str) -> Exhibit:
    models = [f"{dataset}_{kind}" for kind in ("branch_elm", "elm", "lstm", "snn")]
    return Exhibit(
        claim=claim,
        picture=picture,
        stage="figures_shd",
        function=function,
        dataset=dataset,
        experiments=(*models, *more),
    )


def _arena(function: str, *experiments: str, claim: str, picture: str, dataset: str = "lra") -> Exhibit:
    return Exhibit(
        claim=claim,
        picture=picture,
        stage="figures_lra",
        function=function,
        dataset=dataset,
        experiments=experiments,
    )


def _sweep(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for name in names)


_MODELS = ("neuronio_branch_elm", "neuronio_elm", "neuronio_lstm")
_VARIED = ("d_m", "d_mlp", "l_mlp", "lambda", "tau_m_max", "tau_m_constant", "tau_m_min")
_BRANCHES = _sweep("branch_elm", "d_tree", "d_brch")
_PANELS = (
    "Eight panels of the spike AUC over one property each: a) memory units, b) hidden units, c) update scale lambda, "
    "d) longest timescale, e) one timescale for all units, f) shortest timescale, g) branches, h) synapses per branch. "
)

EXHIBITS: dict[str, Exhibit] = {
    "Fig 1": Exhibit(
        claim="A single recurrent cell can stand for a whole cortical neuron. Its synapses $s$ and its memory units "
        "$m$ decay, each memory unit at its own speed, which it learns. A small network (MLP) looks at both and says "
        "what the memory takes up. These are its equations, equation 1 of the paper:\n\n" + EQUATION,
        picture="a) A reconstructed pyramidal cell: its dendrites orange, its synapses green, its soma blue, and the "
        "voltage of its soma below in purple. b) The model as boxes of the same colours: input goes to synapse "
        "currents, a small network, memory units and the output; the memory goes back into the network. c) The "
        "equations, each symbol in the colour of its part.",
        stage="figures_neuronio",
        function="figures.neuron.neuron",
        dataset="neuronio",
    ),
    "Fig 2": _neuronio(
        "figures.neuronio.data_and_results",
        *_MODELS,
        "neuronio_tcn",
        claim="The ELM predicts a detailed cell with few parameters. An AUC of 0.991 counts as accurate. A temporal "
        "convolutional network (TCN) needs about 10 million parameters for it, an LSTM 266 thousand, an ELM "
        "53 thousand, a Branch-ELM 8 thousand. All three predict the voltage better than the TCN.",
        picture="a) Input spikes of 1,278 synapses over two seconds, and the soma's voltage below, with its spikes. "
        "b) Voltage error over trainable parameters on a logarithmic axis: it falls with size, and the Branch-ELM "
        "reaches low errors with the fewest parameters, then the ELM, then the LSTM. c) Spike AUC over parameters: the "
        "same order; a dashed line marks 0.991.",
    ),
    "Fig 3": _neuronio(
        "figures.ablations.ablations",
        *_sweep("elm", *_VARIED),
        *_BRANCHES,
        stage="figures_ablations",
        claim="What it takes to predict this cell: 10 to 20 memory units, more than simple neuron models have; a "
        r"hidden layer, that is, nonlinear integration; updates larger than $\lambda = 3$; timescales $\tau_m$ near "
        "25 ms, though longer ones make up for a lack of them in part.",
        picture=_PANELS + "The published ELM rises steeply at first in panels a to d and is flat after; in e it peaks "
        "near 25 ms; in f it falls slowly.",
    ),
    "Fig 4": _neuronio(
        "figures.neuronio.branches",
        *_MODELS,
        "neuronio_tcn",
        claim="Summing neighbouring synapses into branches first makes the neuron about seven times smaller at the "
        "same accuracy. At few false alarms (0.25 % of silent milliseconds) the quality of models differs most.",
        picture="a) Which of the 1,278 synapses each of the 45 branches takes: overlapping runs along the dendrite. "
        "b) Six seconds of the soma's voltage and of the predicted spike probability, model over biophysical neuron. "
        "c) Share of spikes found at a false-positive rate of 0.0025, over parameters.",
    ),
    "Fig 5": _digits(
        "figures.shd.adding",
        "shd_adding",
        "shd_adding_d_m",
        "shd_adding_tau_m",
        claim="Two spoken digits follow each other, and the model says their sum. The ELM does so at every bin size. "
        "The LSTM fails at fine bins, which make long sequences. The spiking network (SNN) fails at every bin. The "
        r"Branch-ELM keeps up with a third of the parameters. The task takes many memory units and long $\tau_m$.",
        picture="a) Input spikes of a pair of words over two seconds. b to d) Accuracy on training, validation and "
        "test data over the bin size from 1 to 100 ms, for Branch-ELM, ELM, LSTM and SNN. e) Test accuracy over "
        "memory units: published, it rises to about 100 units and falls at 300. f) Test accuracy over the longest "
        "timescale: published, it rises from chance below 50 ms to 0.8 at 300 ms.",
    ),
    "Tab 1": _arena(
        "lra.table_1",
        "lra_elm",
        "lra_chrono",
        claim="On six tasks with long sequences one ELM beats a Chrono-LSTM of the same size, and the larger "
        "Transformer and Longformer. Only large layered models made for such tasks beat it. Of models that were not, "
        "it alone solves Pathfinder-X reliably, with 16 thousand steps a sample.",
        picture="Accuracy in per cent on six tasks, published and ours.",
    ),
    "Tab S1": _arena(
        "settings.defaults",
        dataset="neuronio",
        claim="The hyper-parameters of the neuron on NeuronIO, and what the authors recommend for other data.",
        picture="Hyper-parameters, published and as params.yaml has them.",
    ),
    "Tab S2": _arena(
        "settings.configuration",
        claim="The settings of the ELM on each task of the Long Range Arena.",
        picture="Input size, batch size, epochs, tau_s and timescales of each task, published and ours.",
    ),
    "Tab S3": _arena(
        "settings.configuration",
        claim="The settings of the Chrono-LSTM on each task of the Long Range Arena.",
        picture="Input size, batch size, epochs and timescales of each task, published and ours.",
    ),
    "Tab S4": _neuronio(
        "neuronio.tables_neuronio",
        *("neuronio_lif", "neuronio_simplest_elm", "neuronio_small_branch_elm"),
        claim="Fitted leaky integrate-and-fire neurons (LIF, adaptive LIF) and an ELM of one memory unit stay far "
        "below a Branch-ELM of 5 thousand parameters.",
        picture="Voltage error, AUC and parameters of the smallest models, published and ours.",
    ),
    "Fig S1": _neuronio(
        "figures.neuronio.scores",
        *_MODELS,
        claim="Counted in operations in place of parameters, the Branch-ELM and the ELM are ahead of the LSTM too.",
        picture="a) Voltage error and b) spike AUC over FLOPs for a sample of 500 ms, on a logarithmic axis. "
        "Branch-ELM, ELM and LSTM follow each other from left to right.",
    ),
    "Fig S2": _neuronio(
        "figures.ablations.smaller_lambda",
        "branch_elm_lambda_5",
        stage="figures_ablations",
        claim=r"With $\lambda = 5$ in place of 10 the Branch-ELM trains more stably, above all with many memory units, "
        "and its best score is better.",
        picture="Voltage error, spike AUC and share of spikes found over memory units, for lambda 5 and 10. "
        "Published, the two curves cross: lambda 5 is behind with few units and ahead with many.",
    ),
    "Fig S3": _neuronio(
        "figures.ablations.ablations",
        *_sweep("branch_elm", *_VARIED),
        *_BRANCHES,
        stage="figures_ablations",
        claim="The Branch-ELM needs what the ELM needs (Figure 3). It loses more without a hidden layer, and large "
        r"$\lambda$ makes its training unstable. Timescales of 25 to 50 ms are the most useful.",
        picture=_PANELS + "The model is the Branch-ELM in all of them.",
    ),
    "Fig S4": _neuronio(
        "figures.ablations.improved",
        *_sweep("improved", "branch_elm_tau_m_max", "elm_tau_m_constant", "branch_elm_lambda", "elm_l_mlp"),
        "improved_branch_elm_d_m",
        "improved_shd_adding_d_m",
        stage="figures_ablations",
        claim=r"An improved update, $1 - \exp(-\lambda \Delta t / \tau_m)$ in place of $\lambda (1 - \kappa_m)$, makes "
        "the sweeps stable that were not.",
        picture="Spike AUC over a) the longest timescale, b) one timescale for all units, c) the update scale, "
        "d) memory units. The published curves are smooth.",
    ),
    "Fig S5": _digits(
        "figures.shd.default",
        "shd",
        claim="On single spoken digits ELM and Branch-ELM are accurate at every bin size. The LSTM needs bins of 4 ms "
        "or more. The spiking network does best near 20 ms.",
        picture="Accuracy on training, validation and test data over the bin size from 1 to 100 ms, for Branch-ELM, "
        "ELM, LSTM and SNN.",
    ),
    "Fig S6": _neuronio(
        "figures.ablations.branch_architecture",
        *_sweep("branch_elm", "random", "fixed_w_s", "relu", "sigmoid"),
        "neuronio_branch_elm",
        stage="figures_ablations",
        claim="The Branch-ELM depends on the order of its synapses along the dendrite and on weights that it learns for"
        " them. A nonlinearity on each branch costs a little.",
        picture="Spike AUC over memory units for five variants. Published, the default is highest, the two branch "
        "activations lie just below it, random assignment and fixed weights far below.",
    ),
    "Fig S7": _neuronio(
        "figures.ablations.simple_neurons",
        *_sweep("teacher", "lif", "lif_linear", "alif"),
        "neuronio_elm",
        stage="figures_ablations",
        claim="An ELM with one memory unit and no hidden layer suffices for a leaky integrate-and-fire neuron. With "
        "two units, that neuron is fitted better than one with an adaptive threshold, which has one more hidden state.",
        picture="Best spike AUC over memory units for three teachers. Published, the two point neurons reach 0.999 "
        "with ten units, the biophysical cell levels off near 0.993.",
    ),
    "Fig S8": _arena(
        "figures.lra.tau_s",
        "lra_pathfinder_x_tau_s",
        claim=r"On Pathfinder-X slow synapses ($\tau_s$ of 150 ms) make success reliable. Faster ones can do better, "
        "less reliably.",
        picture="Mean and maximal test accuracy over tau_s from 5 to 300 ms. Published, the mean dips at 75 and 100 ms "
        "and meets the maximum from 125 ms on.",
    ),
    "Tab S5": _arena(
        "lra.ablation",
        "lra_pathfinder_d_m",
        claim="More memory units help on Pathfinder, up to 200.",
        picture="Accuracy and parameters over memory units on Pathfinder, published and ours.",
    ),
    "Tab S6": _arena(
        "lra.ablation",
        "lra_pathfinder_s5",
        claim="An S5, a layered state-space model, owes its score on Pathfinder to its layers: with one layer and "
        "twice the parameters it is below the ELM.",
        picture="Accuracy and parameters over layers of an S5 on Pathfinder, published and ours.",
    ),
    "Tab S7": _arena(
        "lra.ablation",
        "lra_pathfinder_dropout",
        claim="Dropping a fifth to two fifths of the inputs raises the ELM's accuracy on Pathfinder from 73 to 81 % "
        "and more.",
        picture="Training and test accuracy over input dropout on Pathfinder, published and ours.",
    ),
    "Fig S9": Exhibit(
        stage="figures_neuronio",
        function="figures.neuronio.dynamics",
        dataset="neuronio",
        experiments=("neuronio_branch_elm",),
        one_run=True,
        claim="Inside a trained neuron: it was trained on half-second windows and predicts two seconds and more in one "
        "go. Memory units fluctuate as fast as their timescales let them.",
        picture="Two seconds of a) input spikes, excitatory red and inhibitory blue, b) predicted and true voltage and "
        "spike probability, c) 20 synapses, d) all memory units, coloured by timescale.",
    ),
    "Tab S8": _neuronio(
        "neuronio.neuronio_table",
        "neuronio_branch_elm",
        claim="The Branch-ELM reaches an AUC of 0.991 from 15 memory units and 7 thousand parameters on.",
        picture="Parameters, FLOPs, voltage error and AUC of the Branch-ELM by memory units, published and ours.",
    ),
    "Tab S9": _neuronio(
        "neuronio.neuronio_table",
        "neuronio_elm",
        claim="The ELM reaches an AUC of 0.991 from 20 memory units and 53 thousand parameters on.",
        picture="Parameters, FLOPs, voltage error and AUC of the ELM by memory units, published and ours.",
    ),
    "Tab S10": _neuronio(
        "neuronio.neuronio_table",
        "neuronio_lstm",
        claim="The LSTM reaches an AUC of 0.991 from 50 units and 266 thousand parameters on.",
        picture="Parameters, FLOPs, voltage error and AUC of the LSTM by hidden size, published and ours.",
    ),
    "Tab S11": _digits(
        "shd.table",
        "shd",
        claim="The numbers behind Figure S5.",
        picture="Accuracy on training, validation and test data by model and bin size, published and ours.",
    ),
    "Tab S12": _digits(
        "shd.table",
        "shd_adding",
        claim="The numbers behind Figure 5.",
        picture="Accuracy on training, validation and test data by model and bin size, published and ours.",
    ),
    "ELM network": Exhibit(
        claim="From the authors' follow-up ([arXiv 2605.12049](https://arxiv.org/abs/2605.12049)): ELM neurons wired "
        "into a recurrent network. With 77 thousand parameters, 57 neurons of 9 memory units reach 0.8233 on "
        "SHD-Adding at 2 ms; 155 neurons of 2 memory units reach 0.146.",
        picture="Test accuracy and parameters of two networks, published and ours.",
        stage="report",
        function="follow_up.verdicts",
        dataset="shd_adding",
        experiments=("elm_network_77k", "shd_adding_elm"),
    ),
    "Improved update": Exhibit(
        claim="From the authors' follow-up ([arXiv 2605.12049](https://arxiv.org/abs/2605.12049)): Branch-ELMs with "
        "the improved memory update reach an AUC of 0.9708 with 3 memory units, 0.9929 with 20 and 0.9939 with 100.",
        picture="AUC of the Branch-ELM with the improved update by memory units, published and ours.",
        stage="report",
        function="follow_up.verdicts",
        dataset="neuronio",
        experiments=("follow_up_branch_elm",),
    ),
    "SNN reading": Exhibit(
        claim="A question of ours: the paper says that the spiking network's output is filtered with 20 ms. Read "
        "literally, it does not learn. With a filter of 20 time steps it does.",
        picture="Test accuracy of the spiking network with the literal filter.",
        stage="report",
        function="shd_claims.verdicts",
        dataset="shd",
        experiments=("shd_snn_20_ms",),
    ),
    "Routing": Exhibit(
        claim="A question of ours: in the paper the branches of the Branch-ELM draw their channels at random, which "
        "leaves some unread. What do branches that read every channel change on unseen voices?",
        picture="Test accuracy of the two kinds of branches on seen and unseen voices.",
        stage="report",
        function="shd_claims.verdicts",
        dataset="shd",
        experiments=("shd_branch_elm_covering",),
    ),
    "Digits": Exhibit(
        claim="A question of ours: the tasks of the Long Range Arena need a GPU for days. Do its models learn a small "
        "real task to the end on a laptop? They read handwritten digits of 8 x 8 pixels, one pixel a step. The paper "
        "has no such number.",
        picture="Test accuracy of an ELM, an LSTM, a Chrono-LSTM and an S5 of about as many parameters.",
        stage="report",
        function="lra_claims.verdicts",
        dataset="lra",
        experiments=("digits_elm", "digits_lstm", "digits_chrono", "digits_s5"),
    ),
}


def title(claim: str) -> str:
    """ "Fig S3" -> "Figure S3"."""
    return claim.replace("Fig ", "Figure ").replace("Tab ", "Table ")


def dataset_of(claim: str) -> str:
    """Key of `DATASETS` that the rows of a claim belong to; the headline is on NeuronIO."""
    return EXHIBITS[claim].dataset if claim in EXHIBITS else "neuronio"
