"""Random numbers by counter: draw t of stream i is the same in any thread.

The mixing function is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014). The key of all streams comes from `Runtime.generator`. A stream belongs
to a row or a batch, and its draws share no state.
"""

import numpy as np

from batchplan.kernels import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


@njit
def mix(word):  # type: ignore[no-untyped-def]
    """A bijection of uint64 that looks random."""
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@njit
def stream(key, index):  # type: ignore[no-untyped-def]
    """uint64: the key of stream ``index``; distinct streams of a key have distinct keys."""
    return mix(key ^ mix(np.uint64(index) + _GOLDEN))


@njit
def unit(own, counter):  # type: ignore[no-untyped-def]
    """float64 in [0, 1): draw ``counter`` of the stream whose key is ``own``."""
    return np.float64(mix(own + np.uint64(counter) * _GOLDEN) >> np.uint64(11)) * _UNIT


@njit
def below(own, counter, size):  # type: ignore[no-untyped-def]
    """int64 from 0 to ``size`` - 1, equally likely up to a share of ``size`` / 2^53."""
    return np.int64(unit(own, counter) * size)
