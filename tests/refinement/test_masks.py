"""What two rows of a block are to each other, by the definitions of the guard."""

import numpy as np
import pytest

from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard
from batchplan.refinement import make_objective
from batchplan.refinement.blocks import BROKEN, COUNTED, SAME_ROW, SIMILAR
from batchplan.refinement.masks import make_mask, masks_of


def relation(forth, back, i, j, ceilings, codes):
    """Of rows i and j: the last that holds wins."""
    found = COUNTED
    if len(ceilings) and (
        forth >= ceilings[i] or back >= ceilings[i] or forth >= ceilings[j] or back >= ceilings[j]
    ):
        found = SIMILAR
    if any(one[i] == one[j] != -1 for one in codes):
        found = BROKEN
    return SAME_ROW if i == j else found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("kinds", [0, 1, 2])
def test_definitions(seed, limited, kinds):
    """On few different similarities, so that many are at a limit exactly."""
    rng = np.random.default_rng(seed)
    n, m = 12, 9
    similarities = rng.integers(-3, 4, (m, m)).astype(np.float32)
    rows = rng.integers(0, n, m)
    ceilings = rng.integers(0, 6, n if limited else 0).astype(np.float32)
    codes = rng.integers(-1, 4, (kinds, n))
    out = np.full((m, m), 99, np.uint8)
    make_mask(similarities, rows, ceilings, Apart.of(codes, None), out)
    seen = set()
    for a in range(m):
        assert out[a, a] == COUNTED
        for b in set(range(m)) - {a}:
            expected = relation(
                similarities[a, b], similarities[b, a], rows[a], rows[b], ceilings, codes
            )
            assert out[a, b] == out[b, a] == expected
            seen.add(expected)
    assert SAME_ROW in seen
    assert (SIMILAR in seen) <= limited
    assert (BROKEN in seen) <= bool(kinds)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("parts", [(), ("limits",)])
def test_masks_of_batches(clusters, paired, parts):
    """The similarities are those of x and y, whether or not they are looked at."""
    case = clusters(30, paired=paired)
    S = case.similarities().astype(np.float32)
    codes = (np.arange(30) % 7,)
    ceilings = np.full(30, 0.437, np.float32) if "limits" in parts else None
    objective = make_objective(
        case.embeddings(), case.runtime, similarity="cosine", temperature=0.1,
        guard=Guard(ceilings, Apart.of(codes, None)),
    )  # fmt: skip
    members = np.random.default_rng(0).permutation(30).reshape(3, 10)
    masks = masks_of(objective, members)
    limits = np.empty(0, np.float32) if ceilings is None else ceilings
    for mask, rows in zip(masks, members, strict=True):
        for a, i in enumerate(rows):
            for b, j in enumerate(rows):
                if a != b:
                    expected = relation(S[i, j], S[j, i], i, j, limits, codes)
                    assert mask[a, b] == expected
