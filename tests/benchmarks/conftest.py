import pytest
import torch


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Benches train without subnormal numbers; tests that run later in this process have them."""
    yield
    torch.set_flush_denormal(False)
