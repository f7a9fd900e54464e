"""A REVISION is a promise: the same settings give the same losses, on every float32 engine."""

import json

import numpy as np
import pytest
from trajectories import KINDS, RAISE, STORED, TOLERANCE, losses, revision_of, write_sets

from elm_lib.kernels.recurrence import COMPILED

ENGINES = ["reference", "torch", *COMPILED]
ELMS = [kind for kind, (_, _, model, _) in KINDS.items() if "elm" in str(model)]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "engine"),
    [(kind, engine) for kind in KINDS for engine in (ENGINES if kind in ELMS else ["reference"])],
)
def test_the_first_losses_are_those_of_the_revision(sets, kind, engine):
    if engine == "cuda":
        pytest.importorskip("torch").cuda.is_available() or pytest.skip("needs a GPU: the interpreter is too slow")
    stored = json.loads(STORED.read_text())[kind]
    assert stored["revisions"] == revision_of(kind), f"{kind}: a REVISION was raised: {RAISE}"
    np.testing.assert_allclose(
        losses(sets, kind, engine), stored["losses"], rtol=TOLERANCE, err_msg=f"{kind} on {engine}: {RAISE}"
    )
