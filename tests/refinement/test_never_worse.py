"""Whatever the data: no pass lowers what is to be raised."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.refinement import refine_rows

SIZES = (1.0, 1e3, 1e6)


@pytest.fixture(scope="module")
def problem(case):
    """A function that draws a case and batches of its rows."""

    def drawn(draw, similarities=("cosine", "dot"), **more):
        n, d = draw(st.integers(4, 40)), draw(st.integers(1, 6))
        batch_size = draw(st.integers(2, n))
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        x = rng.standard_normal((n, d)) + draw(st.sampled_from((0.0, 3.0)))
        y = x + draw(st.sampled_from((0.0, 0.5, 5.0))) * rng.standard_normal((n, d))
        shape = draw(st.sampled_from(("plain", "ties", "duplicates", "equal", "near")))
        if shape == "ties":
            x, y = np.round(x) + 0.5, np.round(y) + 0.5
        if shape == "duplicates":
            x[n // 2 :], y[n // 2 :] = x[: n - n // 2], y[: n - n // 2]
        if shape == "equal":
            x[:], y[:] = x[0] + 0.1, y[0] + 0.1
        if shape == "near":
            x, y = x[0] + 2 + 1e-4 * x, y[0] + 2 + 1e-4 * y
        similarity = draw(st.sampled_from(similarities))
        size = draw(st.sampled_from(SIZES)) if similarity == "dot" else 1.0
        sides = [(size * side).astype(np.float32) for side in (x, y)]
        made = case(
            *sides[: 1 + draw(st.booleans())],
            similarity=similarity, tau=draw(st.sampled_from((1e-6, 0.01, 0.05, 1.0, 20.0))),
        )  # fmt: skip
        return made, *made.cut(batch_size, draw(st.integers(0, 9)))

    return drawn


def refined(case, rows, offsets):
    made = refine_rows(rows, offsets, case.objective(), case.affinity(6), case.runtime, 3)
    assert np.array_equal(np.sort(made.rows), np.sort(rows))
    return made


@settings(max_examples=150)
@given(st.data())
def test_the_loss_never_falls(problem, data):
    case, rows, offsets = problem(data.draw)
    # As the product of float32 rows, so that the last digits of a float64 sum are all that differs.
    x = case.objective().x.double().numpy()
    y = case.objective().y.double().numpy()
    exact = case.but(x=x, y=y, similarity="dot")
    made = refined(case, rows, offsets)
    before, after = (exact.loss(one, offsets) for one in (rows, made.rows))
    assert after >= before - 1e-11 * (1 + abs(before))
    assert made.gain >= 0


@settings(max_examples=100)
@given(st.data())
def test_groups_never_meet_more_often(problem, data):
    case, rows, offsets = problem(data.draw)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    codes = rng.integers(-1, max(1, len(rows) // data.draw(st.integers(2, 5))), (2, len(rows)))
    S = case.similarities()
    case = case.but(
        groups=tuple(codes)[: data.draw(st.integers(1, 2))],
        ceilings=data.draw(st.sampled_from((None, np.quantile(S, 0.8, axis=1)))),
        penalty=data.draw(st.sampled_from((np.inf, 0.0, 1.0))),
    )
    made = refined(case, rows, offsets)
    before, after = (case.pairs(one, offsets, case.together()) for one in (rows, made.rows))
    assert after <= before


@settings(max_examples=100)
@given(st.data())
def test_similar_rows_never_meet_more_often(problem, data):
    case, rows, offsets = problem(data.draw, ("cosine",))
    objective = case.but(tau=0.05).objective()
    S = (objective.x @ objective.y.T).numpy()
    ceilings = np.quantile(S, data.draw(st.sampled_from((0.5, 0.9))), axis=1) + 1e-5
    case = case.but(tau=0.05, ceilings=ceilings.astype(np.float32))
    alike = case.alike(S)
    lower = np.minimum(ceilings[:, None], ceilings)
    sure = np.abs(np.maximum(S, S.T) - lower) > 1e-6  # by any product of float32 rows
    if not sure.all():
        return
    made = refined(case, rows, offsets)
    before, after = (case.pairs(one, offsets, alike) for one in (rows, made.rows))
    assert after <= before


@settings(max_examples=100)
@given(st.data())
def test_the_loss_less_the_penalty_never_falls(problem, data):
    case, rows, offsets = problem(data.draw, ("cosine",))
    tau = data.draw(st.sampled_from((0.01, 0.05, 1.0)))
    penalty = data.draw(st.sampled_from((0.0, 0.1, 3.0, 1000.0)))
    objective = case.objective()
    x, y = objective.x.double().numpy(), objective.y.double().numpy()
    exact = case.but(x=x, y=y, similarity="dot", tau=tau)
    S = exact.similarities()
    ceilings = (np.quantile(S, 0.8, axis=1) + 1e-5).astype(np.float32)
    if (np.abs(np.maximum(S, S.T) - np.minimum(ceilings[:, None], ceilings)) < 1e-6).any():
        return
    case, exact = (one.but(tau=tau, ceilings=ceilings, penalty=penalty) for one in (case, exact))
    made = refined(case, rows, offsets)
    worth = [
        exact.loss(one, offsets) - penalty * exact.pairs(one, offsets, exact.alike(S))
        for one in (rows, made.rows)
    ]
    assert worth[1] >= worth[0] - 1e-9 * (1 + abs(worth[0]))
