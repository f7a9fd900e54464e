"""Simulators behind the generated data.

The layer-5 pyramidal cell: `morphology` (reconstruction -> compartments, with `soma` and `densities`),
`channels` (kinetics, on `singles`), `l5pc` (integration of 16 simulations at once), `inputs` (NeuronIO's
random input), `generate` (files, processes). `arbor_reference` is a check that nothing else needs.

Spoken digits: `speech` (espeak-ng), `cochlea` (sound -> spikes of 700 channels), `digits` (files, processes).
"""
