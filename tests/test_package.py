"""What a user of the package alone meets: its import, a machine without numba."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)


def test_the_import_brings_torch_and_nothing_slow():
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "from elm_lib import ELM, BranchELM, Spikes, State\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    brought = set(python(code).stdout.split())
    assert brought <= {"elm_lib"}, "import what is slow where it is first used"


def test_without_numba_it_is_said_once_and_results_are_the_same():
    code = (
        "import sys, warnings; sys.modules['numba'] = None\n"
        "import torch; from elm_lib import ELM, Spikes; torch.manual_seed(0)\n"
        "neuron, x = ELM(6, 5, batch_first=True), torch.rand(2, 70, 6).round()\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    outputs = [neuron(x)[0], neuron(Spikes.from_dense(x))[0], ELM(6, 5, engine='torch')(x)[0]]\n"
        "reference = ELM(6, 5, batch_first=True, engine='reference'); reference.load_state_dict(neuron.state_dict())\n"
        "for y in outputs[:2]: torch.testing.assert_close(y, reference(x)[0])\n"
        "print(*[str(one.message) for one in caught], sep='\\n')"
    )
    (said,) = python(code).stdout.strip().splitlines()
    assert "numba is not installed" in said and "times" in said and "pip install 'elm-lib[fast]'" in said
