"""One thread: the suite runs beside itself on few cores."""

import pytest
import torch

torch.set_num_threads(1)

RULES = ["taps-gd", "taps-sign", "taps-momentum", "taps-rmsprop", "taps-adam", "taps-bb"]
FIXED = ["standard", "constant:eta=0.9", "schedule:etas=1/1.2/0.9"]


@pytest.fixture(params=RULES)
def rule(request):
    import looptaps as lt

    return lt.spec(request.param)


@pytest.fixture(params=RULES + FIXED)
def controller(request):
    import looptaps as lt

    return lt.spec(request.param)
