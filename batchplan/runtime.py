"""How stages run: device, memory budget, seed, and who observes the progress."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from batchplan.errors import OptionError, ResourceError

if TYPE_CHECKING:
    import numpy as np
    import torch

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{unit}i": 1 << (10 * power) for power, unit in enumerate("kmgt", start=1)}

WARNING = "warning"  # the name of the notes that quiet runs show too
# What to do if all rows do not fit into memory at once.
IN_PARTS = "plan with partition and a smaller --mega-batch-rows"
FEWER = f"use fewer --neighbors, or {IN_PARTS}"  # what to do if all neighbours do not fit
SCRATCH = "temporary file"  # the name of the note that says where one is, and how large
CHOICE = "chose"  # the name of the notes that say what was chosen for the user, and why
EXPECTED = "expected"  # the name of the note of what plans gained in similar trainings
PLANNED = "planned"  # the name of the notes of plans that are made one after the other
NOTE = "note"  # the name of the notes that say how the input was understood
COMMAND = "full command"  # the name of the note that spells the command of what was chosen


class Observer(Protocol):
    """Observes the stages of a run; the command line shows progress bars and a summary."""

    def start(self, stage: str, total: int | None) -> None:
        """A stage begins; ``total`` steps will follow, None if unknown."""

    def advance(self, stage: str, steps: int) -> None:
        """``steps`` more steps of the stage are done."""

    def finish(self, stage: str, seconds: float) -> None:
        """The stage ended after ``seconds`` of wall time."""

    def note(self, name: str, value: object) -> None:
        """A fact about the run that is not in the plan, such as a retried pass."""


@dataclass(frozen=True)
class Runtime:
    """How a run computes. Only the seed changes the result.

    Attributes:
        device: ``auto`` (CUDA if available), ``cpu``, or ``cuda`` for all CUDA devices that are
            visible (``cuda:1`` for the second alone).
        memory: bytes of host memory, and of device memory, that the process may use; None for most
            of what is free.
        seed: seed of every random choice, a non-negative integer.
        observer: gets the stages and their progress; None if nothing observes the run.

    Raises:
        OptionError: an unknown device name, a negative seed, or a memory budget of 0 or less.
    """

    device: str = "auto"
    memory: int | None = None
    seed: int = 0
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", str(self.device)):
            raise OptionError(f"device: got {self.device!r}, expected auto, cpu, cuda or cuda:N")
        seed: Any = self.seed  # types are promises that Python does not keep
        if not isinstance(seed, Integral) or int(seed) < 0:
            raise OptionError(f"seed: got {seed!r}, expected an integer of 0 or more")
        memory: Any = self.memory
        if memory is not None and (not isinstance(memory, Integral) or int(memory) <= 0):
            raise OptionError(
                f"memory: got {memory!r}, expected a number of bytes above 0, or a text such as 8GB"
            )

    @classmethod
    def of(
        cls,
        device: str = "auto",
        memory: int | str | None = None,
        seed: int = 0,
        observer: Observer | None = None,
    ) -> Runtime:
        """Make a runtime whose memory may be a text such as ``8GB``.

        Raises:
            OptionError: as `Runtime`, and as `parse_memory`.
        """
        return cls(
            device, parse_memory(memory) if isinstance(memory, str) else memory, seed, observer
        )

    def torch_device(self) -> torch.device:
        """Return the device to compute on.

        Raises:
            ResourceError: CUDA was requested, and this machine or this build of torch lacks it.
        """
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ResourceError(
                f"device {self.device}: torch {torch.__version__} sees no CUDA device here; "
                "use --device cpu, or install a CUDA build of torch"
            )
        device = torch.device(self.device)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ResourceError(
                f"device {self.device}: there are {torch.cuda.device_count()} CUDA devices here, "
                "numbered from 0; use --device cuda for all of them"
            )
        return device

    def torch_devices(self) -> list[torch.device]:
        """Return the devices to deal rows to: all that are visible under ``cuda``, and under
        ``auto`` where there is one; otherwise `torch_device` alone, and what it raises."""
        import torch

        device = self.torch_device()
        if device.type == "cpu" or ":" in self.device:
            return [device]
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    def generator(self, *stream: int) -> np.random.Generator:
        """Return a Philox generator with this seed; ``stream`` separates independent uses of the
        seed."""
        import numpy as np

        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, *stream])))

    def memory_left(self, device: torch.device | None = None) -> int:
        """Return bytes that this process may still allocate, on the host or on a CUDA device."""
        if device is not None and device.type == "cuda":
            import torch

            # What torch keeps for later is free, too.
            kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            free = int(0.9 * (torch.cuda.mem_get_info(device)[0] + kept))
            return free if self.memory is None else min(free, self.memory)
        if self.memory is not None:
            return self.memory - resident_memory()
        return int(0.8 * available_memory())

    def require_memory(
        self, need: int, what: str, hint: str = "", device: torch.device | None = None
    ) -> None:
        """Refuse work that needs more memory than is left, before anything is allocated.

        Args:
            need: bytes that will be allocated.
            what: what needs them, in the plural, such as ``bcs: 100 rows of 8 dimensions``.
            hint: what to do instead of raising ``--memory``.
            device: where; None for the host.

        Raises:
            ResourceError: ``need`` is more than `memory_left`.
        """
        left = max(self.memory_left(device), 0)
        if need <= left:
            return
        kind = "device memory" if device is not None and device.type == "cuda" else "memory"
        raise ResourceError(
            f"{what} need {format_bytes(need)} of {kind} and {format_bytes(left)} is left; raise "
            f"--memory{f', or {hint}' if hint else ''}"
        )

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Time a stage and report its progress; yields a function to call with the steps done."""
        if self.observer is None:
            yield silent
            return
        observer = self.observer
        observer.start(name, total)
        began = time.perf_counter()
        try:
            yield lambda steps: observer.advance(name, steps)
        finally:
            observer.finish(name, time.perf_counter() - began)

    def note(self, name: str, value: object) -> None:
        """Tell the observer a fact about the run; see `Observer.note`."""
        if self.observer is not None:
            self.observer.note(name, value)


def silent(_steps: int) -> None:
    """Report no progress."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 products in float32, without TF32 or bfloat16, and sum bfloat16 products in
    float32, whatever the caller set."""
    import torch

    backends: list[Any] = []
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch 2.9 and later
        backends = [module.matmul for module in (torch.backends.cuda, torch.backends.mkldnn)]
    # After the newer setting is used, torch refuses to read the older one.
    before = [backend.fp32_precision for backend in backends]
    legacy = None if backends else torch.get_float32_matmul_precision()
    matmul = torch.backends.cuda.matmul
    reduced = matmul.allow_bf16_reduced_precision_reduction
    try:
        matmul.allow_bf16_reduced_precision_reduction = False
        for backend in backends:
            backend.fp32_precision = "ieee"
        if legacy:
            torch.set_float32_matmul_precision("highest")
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = reduced
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value
        if legacy:
            torch.set_float32_matmul_precision(legacy)


def parse_memory(text: str) -> int:
    """Return the bytes of ``512MB``, ``8GiB``, ``8g`` or a plain number.

    Raises:
        OptionError: other text, or not positive.
    """
    match = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    size = 0
    if match is not None and match[2] in _UNITS:
        size = int(float(match[1]) * _UNITS[match[2]])
    if not size:
        raise OptionError(
            f"memory: got {text!r:.80}, expected a size such as 8GB, 512MiB or 2000000000"
        )
    return size


def format_bytes(count: float) -> str:
    """``1.5 GB`` for 1.5e9: decimal units, as `parse_memory` reads them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{int(count)} B"


def usable_processors() -> int:
    """Return processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resident_memory() -> int:
    """Return bytes of memory that this process uses, without mapped files, which can be evicted."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak_memory()  # no /proc (macOS): the closest available number
    resident, mapped = (int(pages) for pages in statm.read_text().split()[1:3])
    return (resident - mapped) * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    # On Linux, ru_maxrss starts from the peak of the parent process.
    if (peak := _kilobytes(Path("/proc/self/status"), "VmHWM")) is not None:
        return peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_device_memory() -> int:
    """Return the largest CUDA memory that torch has used, in bytes; 0 without torch or a device."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.max_memory_allocated())


def available_memory() -> int:
    """Return bytes of host memory available without swapping, within the limit of the cgroup."""
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    if free is None:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        stat = dict(
            line.split() for line in (limit.parent / "memory.stat").read_text().splitlines()
        )
        cache = int(stat.get("inactive_file", 0))  # counted as used, but freed when needed
        free = min(free, int(text) - int(used.read_text()) + cache)
    return max(free, 0)


def _kilobytes(file: Path, name: str) -> int | None:
    """Return the bytes that a file of /proc states in kilobytes; None without such a file or
    line."""
    text = file.read_text() if file.exists() else ""
    found = [line.split() for line in text.splitlines() if line.startswith(f"{name}:")]
    return int(found[0][1]) * 1024 if found else None
