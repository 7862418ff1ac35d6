"""Two workers of run_pretraining end with the undisturbed weights, whatever disturbs them."""

import pytest

from tests.tools import worker_faults

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def undisturbed(folder):
    return worker_faults.run_undisturbed(folder)


@pytest.mark.parametrize("fault", worker_faults.FAULTS)
def test_the_weights_are_those_of_the_undisturbed_run(folder, undisturbed, fault):
    if fault == "full_disk" and not worker_faults.can_mount(folder):
        pytest.skip("needs root, to mount a small disk")
    count = 4 if fault == "kill" else 1  # the fourth comes while the workers start
    outcome = worker_faults.outcome_of(folder, undisturbed, fault, count, seed=0)
    print(f"{worker_faults.HEADER}\n{outcome}")
    assert not outcome.is_wrong()
