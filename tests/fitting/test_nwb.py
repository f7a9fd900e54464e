"""NWB files become the arrays that they were made of."""

from datetime import UTC, datetime

import numpy as np
import pytest

import elm_lib
from elm_lib.datasets.recorded.nwb import read_nwb
from elm_lib.datasets.recorded.trials import read_trials
from elm_lib.support.errors import DataError

pynwb = pytest.importorskip("pynwb", reason="pip install '.[nwb]'")

SIGNS = np.array([1, -1, 1])
STEP_S = 5e-4


@pytest.fixture(scope="module")
def arrays():
    """8 trials of 1 s, sampled every 0.5 ms."""
    rng = np.random.default_rng(0)
    inputs = [[np.sort(rng.uniform(0, 1000, 20)) for _ in SIGNS] for _ in range(8)]
    voltage = [rng.normal(-65, 4, 2000) for _ in range(8)]
    return inputs, voltage, [np.sort(rng.uniform(1, 999, 5)) for _ in range(8)]


def write(path, arrays, *, trials=False, output=True, column="sign", unit="volts", timestamps=False):
    """Trials begin every 2 s, from 10 s on. trials: one series of all, and a table of trials."""
    inputs, voltage, spikes = arrays
    file = pynwb.NWBFile(
        session_description="a cell", identifier="id", session_start_time=datetime(2026, 1, 1, tzinfo=UTC)
    )
    starts = 10 + 2.0 * np.arange(len(voltage))
    if trials:
        whole = np.full(round(2 * len(voltage) / STEP_S), -70.0)
        for k, v in enumerate(voltage):
            whole[4000 * k : 4000 * k + 2000] = v
            file.add_trial(start_time=starts[k], stop_time=starts[k] + 1.0)
        sampled = {"timestamps": 10 + STEP_S * np.arange(len(whole))} if timestamps else {"rate": 1 / STEP_S}
        if not timestamps:
            sampled["starting_time"] = 10.0
        file.add_acquisition(pynwb.TimeSeries(name="Vm", data=whole, unit=unit, conversion=1e-3, **sampled))
    else:
        device = file.create_device("rig")
        electrode = file.create_icephys_electrode(name="e", description="d", device=device)
        for k in np.random.default_rng(1).permutation(len(voltage)):
            series = pynwb.icephys.CurrentClampSeries(
                name=f"sweep{k}",
                data=voltage[k] / 1000,
                electrode=electrode,
                gain=1.0,
                starting_time=starts[k],
                rate=1 / STEP_S,
            )
            file.add_acquisition(series)
    file.add_unit_column(name=column, description="+1 excitatory, -1 inhibitory, 0 the recorded neuron")
    rows = [(sign, [trial[c] for trial in inputs]) for c, sign in enumerate(SIGNS)] + [(0, spikes)] * output
    for sign, trains in rows:
        times = np.concatenate([start + t / 1000 for start, t in zip(starts, trains)])
        file.add_unit(spike_times=times, **{column: float(sign)})
    with pynwb.NWBHDF5IO(str(path), "w") as io:
        io.write(file)
    return path


@pytest.mark.parametrize("how", [{}, {"trials": True}, {"trials": True, "timestamps": True}])
def test_a_file_holds_the_arrays(arrays, tmp_path, how):
    path = write(tmp_path / "cell.nwb", arrays, **how)
    found = read_nwb(path, series="Vm") if how else read_nwb(path)
    assert found["signs"].tolist() == SIGNS.tolist() and found["dt_ms"] == pytest.approx(0.5)
    inputs, voltage, spikes = arrays
    for k in range(8):
        np.testing.assert_allclose(found["voltage"][k], voltage[k], atol=1e-9)
        np.testing.assert_allclose(found["spikes"][k], spikes[k], atol=1e-6)
        for one, other in zip(found["inputs"][k], inputs[k], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_fit_takes_the_file(arrays, tmp_path):
    path = write(tmp_path / "cell.nwb", arrays)
    tiny = {"epochs": 1, "batches_per_epoch": 2}
    fit = elm_lib.fit(path, out=tmp_path / "out", train=tiny, window_ms=200, model={"d_m": 2}, delta_t=2.0)
    assert fit.settings["delta_t"] == 2.0 and fit.settings["signs"] == SIGNS.tolist()
    with pytest.raises(TypeError, match="leave out signs"):
        elm_lib.fit(path, signs=SIGNS)


def test_without_output_spikes_they_are_crossings(arrays, tmp_path):
    found = read_nwb(write(tmp_path / "cell.nwb", arrays, output=False))
    assert found["spikes"] is None
    with pytest.raises(DataError, match="never crosses -20 mV"):
        read_trials(**found)


def test_what_a_file_lacks_is_said(arrays, tmp_path):
    path = write(tmp_path / "a.nwb", arrays, column="weight")
    with pytest.raises(DataError, match="column `sign`"):
        read_nwb(path)
    path = write(tmp_path / "b.nwb", arrays, trials=True)
    with pytest.raises(DataError, match=r"no soma voltage as CurrentClampSeries .* has \['Vm'\]: name it"):
        read_nwb(path)
    path = write(tmp_path / "c.nwb", arrays, trials=True, unit="amperes")
    with pytest.raises(DataError, match="in 'amperes'"):
        read_nwb(path, series="Vm")
    (tmp_path / "d.nwb").write_bytes(b"no HDF5")
    with pytest.raises(DataError, match="pynwb cannot read it"):
        read_nwb(tmp_path / "d.nwb")
