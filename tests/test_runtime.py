"""`Runtime.require_memory`: what every stage says when its work does not fit."""

from __future__ import annotations

import pytest
import torch

from batchplan import ResourceError
from batchplan.runtime import Runtime

TIGHT = Runtime(memory=1)  # less than Python itself takes


def test_refusal_says_what_needs_how_much_and_what_to_do():
    with pytest.raises(ResourceError) as caught:
        TIGHT.require_memory(3 * 10**9, "cluster: 5 rows", "plan the data in parts")
    assert str(caught.value) == (
        "cluster: 5 rows need 3.0 GB of memory and 0 B is left; raise --memory, or plan the data "
        "in parts"
    )


def test_hint_may_be_absent():
    with pytest.raises(ResourceError, match=r"raise --memory$"):
        TIGHT.require_memory(1, "rows")


def test_what_fits_passes():
    Runtime(memory=1 << 40).require_memory(1, "rows")
    TIGHT.require_memory(0, "nothing")


def cards(monkeypatch, count):
    """Let torch see so many CUDA devices, each with 1,000 bytes free and 100 that torch keeps."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (1000, 9000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 600)


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("auto", ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda", ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:1", ["cuda:1"]),
        ("cpu", ["cpu"]),
    ],
)
def test_devices_to_deal_rows_to(monkeypatch, name, devices):
    cards(monkeypatch, 3)
    assert [str(device) for device in Runtime(device=name).torch_devices()] == devices


def test_one_device_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [str(device) for device in Runtime().torch_devices()] == ["cpu"]
    with pytest.raises(ResourceError, match="no CUDA device"):
        Runtime(device="cuda").torch_devices()


def test_what_torch_keeps_on_a_device_is_free(monkeypatch):
    cards(monkeypatch, 1)
    device = torch.device("cuda:0")
    assert Runtime().memory_left(device) == 990
    assert Runtime(memory=500).memory_left(device) == 500
