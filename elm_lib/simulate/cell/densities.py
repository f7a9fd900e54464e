"""Where the layer-5 pyramidal cell has which channels (Hay et al. 2011, table 2; as in L5PCbiophys3.hoc of
ModelDB 139653)."""

from __future__ import annotations

import numpy as np

SOMA, AXON, BASAL, APICAL, BRANCH_POINT = 0, 1, 2, 3, 4  # kinds of node

# S/cm2 but for cm (uF/cm2), ca_decay (ms), ca_gamma (1); Ih and Ca_LVA of the apical tree depend on the
# distance from the soma
UNIFORM = {
    "cm": {SOMA: 1.0, AXON: 1.0, BASAL: 2.0, APICAL: 2.0},
    "pas": {SOMA: 3e-5, AXON: 3e-5, BASAL: 6e-5, APICAL: 6e-5},
    "ih": {SOMA: 7.5e-5, AXON: 5e-5, BASAL: 5e-5},
    "im": {SOMA: 8e-6, AXON: 0.013322, APICAL: 0.00099},
    "ca_lva": {SOMA: 0.000557, AXON: 0.000813},
    "ca_hva": {SOMA: 0.000644, AXON: 0.000222, APICAL: 0.000701},
    "skv3_1": {SOMA: 0.338029, AXON: 0.473799, APICAL: 0.001808},
    "sk_e2": {SOMA: 0.09965, AXON: 4.7e-5, APICAL: 2e-6},
    "nats2_t": {SOMA: 0.998912, APICAL: 0.021489},
    "nata_t": {AXON: 3.89618},
    "nap_et2": {AXON: 0.005834},
    "k_tst": {AXON: 0.077274},
    "k_pst": {AXON: 0.188851},
    "ca_decay": {SOMA: 294.679571, AXON: 277.300774, APICAL: 35.725651},
    "ca_gamma": {SOMA: 0.000509, AXON: 0.000525, APICAL: 0.000637},
}
CA_LVA_APICAL = 0.2271264  # S/cm2 in the hot zone, a hundredth of it elsewhere
HOT_ZONE = (685.0, 885.0)  # um from the soma


def channel_densities(kind: np.ndarray, distance: np.ndarray, longest_apical_path: float) -> dict[str, np.ndarray]:
    """Density of each channel in each node, float64 (N,), units as in `UNIFORM`.

    kind (N,): SOMA .. BRANCH_POINT. distance (N,): um from the soma, at which a density is evaluated.
      longest_apical_path: um.
    """
    densities = {name: np.zeros(len(kind)) for name in UNIFORM}
    for name, by_kind in UNIFORM.items():
        for where, value in by_kind.items():
            densities[name][kind == where] = value
    apical = kind == APICAL
    d = distance[apical]
    relative = np.minimum(d / longest_apical_path, 0.65)
    densities["ih"][apical] = 1e-4 * (-0.8696 + 2.087 * np.exp(3.6161 * relative))
    hot = (d > HOT_ZONE[0]) & (d < HOT_ZONE[1])
    densities["ca_lva"][apical] = CA_LVA_APICAL * np.where(hot, 1.0, 0.01)
    return densities
