"""The metrics once more, from their definitions: dense, float64, loops, plain numpy."""

from dataclasses import replace

import numpy as np
import pytest

from batchplan.data import Embeddings
from batchplan.plans import Batching, Plan
from batchplan.quality.references import _STREAM, random_rows
from batchplan.runtime import Runtime


def dense(embeddings, similarity):
    """float64 (N, N) x_i . y_j; every pair is summed in the same order: equal rows tie exactly."""
    x, y = (
        side.rows(0, embeddings.num_rows).astype(np.float64)
        for side in (embeddings.x, embeddings.y)
    )
    if similarity == "cosine":
        x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    if len(x) > 200:  # real data: no ties to care for
        return x @ y.T
    return np.einsum("ik,jk->ij", x, y)


def of_documents(embeddings, similarity, tau):
    """float64 (N, N) each: x_i . y_j; tau log sum_c exp(x_i . d_jc / tau) over the documents of row
    j that exist; and the largest of these products. All the same without mined negatives."""
    S = dense(embeddings, similarity)
    tiles = [S]
    for number, matrix in enumerate(embeddings.negatives):
        tile = dense(replace(embeddings, y=matrix), similarity)
        if embeddings.missing is not None:
            tile[:, embeddings.missing[number]] = -np.inf
        tiles.append(tile)
    stacked = np.stack(tiles)
    if len(tiles) == 1:
        return S, S, S
    return S, tau * np.logaddexp.reduce(stacked / tau), stacked.max(axis=0)


def log_sum_exp(values):
    return values.max() + np.log(np.exp(values - values.max()).sum())


def ranked_negatives(S):
    """Each row's negatives, hardest first, the lower index first among equals."""
    order = np.argsort(-S, axis=1, kind="stable")
    return np.array([row[row != i] for i, row in enumerate(order)])


def train_losses(S, own, batches, tau):
    return [-own[i] / tau + log_sum_exp(S[i, batch] / tau) for batch in batches for i in batch]


def bounds(S, own, batches, tau):
    """Theorems 3.6 and 3.7 of GCBS, of the rows of the batches."""
    n = len(S)
    top = np.mean(np.maximum(S.max(axis=1), own) - own) / tau + np.log(n)
    low, high = [], []
    for batch in batches:
        for i in batch:
            others = [S[i, j] for j in batch if j != i]
            low.append((min([own[i], *others]) - own[i]) / tau + np.log(len(batch)))
            high.append((S[i, batch].max() - own[i]) / tau)
    return top - np.mean(low), top - np.mean(high)


def assignment(forth, back, batches):
    """The objectives of theorems 4.2 and 4.1."""
    blocks = [(forth[np.ix_(batch, batch)], back[np.ix_(batch, batch)]) for batch in batches]
    off = [side[~np.eye(len(side), dtype=bool)] for pair in blocks for side in pair]
    least = min([part.min() for part in off if part.size], default=None)
    return sum(side.sum() for pair in blocks for side in pair), least


def of_edges(S, plan):
    """The share of the N (k - 1) largest s_ij, i != j, whose rows share a batch; how far apart the
    rows of one are in the plan."""
    n, order = len(S), plan.rows.tolist()
    values = [(-S[i, j], i, j) for i in range(n) for j in range(n) if i != j]
    edges = [pair for _, *pair in sorted(values)[: n * min(plan.batch_size - 1, n - 1, 64)]]
    batches = [set(batch.tolist()) for batch in plan.batches()]
    recall = np.mean([any({i, j} <= batch for batch in batches) for i, j in edges])
    spans = [abs(order.index(i) - order.index(j)) for i, j in edges if {i, j} <= set(order)]
    return float(recall), max(spans, default=None)


def one_direction(S, own, plan, tau, orders):
    """The losses of rows with similarities S and those of the positives, (N,)."""
    n, k = len(S), plan.batch_size
    hard = ranked_negatives(S)
    batches = list(plan.batches())
    train = train_losses(S, own, batches, tau)
    entries = [(i, batch) for batch in batches for i in batch]
    whole = [-own[i] / tau + log_sum_exp(S[i] / tau) for i in range(n)]
    oracle = [-own[i] / tau + log_sum_exp(S[i, [i, *hard[i, : k - 1]]] / tau) for i in range(n)]
    at_random = [train_losses(S, own, batches_of(order, plan), tau) for order in orders]
    random = [np.mean(losses) for losses in at_random]
    bound_36, bound_37 = bounds(S, own, batches, tau)
    result = {
        "loss_train": np.mean(train),
        "loss_global": np.mean(whole),
        "loss_random": np.mean(random),
        "loss_oracle": np.mean(oracle),
        "gap": np.mean(whole) - np.mean(train),
        "bound_36": bound_36,
        "bound_37": bound_37,
        "positive_probability": np.mean(np.exp(-np.array(train))),
        "positive_probability_random": np.mean(np.exp(-np.array(at_random))),
        "positive_probability_global": np.mean(np.exp(-np.array(whole))),
    }
    recall = {
        str(m): np.mean([np.isin(hard[i, :m], batch).mean() for i, batch in entries])
        for m in (1, 10)
    }
    return result, np.array(random), recall


def batches_of(order, plan):
    return np.split(order, plan.batch_offsets[1:-1])


def brute_force(plan, embeddings, *, temperature, similarity, random_trials, seed=0, guard=False):
    """The whole of `Evaluation.to_dict`, for small N; `guard_report` is its guard."""
    assert not guard
    pairs, forth, S = of_documents(embeddings, similarity, temperature)
    n, own = len(S), np.diagonal(pairs)
    batches = list(plan.batches())
    orders = [
        random_rows(Runtime(seed=seed).generator(_STREAM, t), n, plan.batch_offsets)
        for t in range(random_trials)
    ]
    (xy, random_xy, recall_xy), (yx, random_yx, recall_yx) = (
        one_direction(side, own, plan, temperature, orders) for side in (forth, pairs.T)
    )
    mean = {name: (xy[name] + yx[name]) / 2 for name in xy}
    random = (random_xy + random_yx) / 2
    gap_random = mean["loss_global"] - mean["loss_random"]
    reach = mean["loss_oracle"] - mean["loss_random"]
    negatives = [S[i, j] for batch in batches for i in batch for j in batch if i != j]
    percents = (1, 5, 25, 50, 75, 95, 99)
    objective, bottleneck = assignment(forth, pairs.T, batches)
    recall, bandwidth = of_edges(pairs, plan)
    return {
        "num_rows": n,
        "num_batches": len(batches),
        "batch_size": plan.batch_size,
        "partitions_rows": plan.metadata.partitions_rows,
        "temperature": temperature,
        "similarity": similarity,
        "loss_train": mean["loss_train"],
        "loss_global": mean["loss_global"],
        "gap": mean["gap"],
        "loss_random": mean["loss_random"],
        "loss_random_std": np.std(random, ddof=1),
        "random_z": (mean["loss_train"] - mean["loss_random"]) / np.std(random, ddof=1),
        "gap_random": gap_random,
        "gap_reduction": 1 - mean["gap"] / gap_random,
        "loss_oracle": mean["loss_oracle"],
        "oracle_share": (mean["loss_train"] - mean["loss_random"]) / reach,
        "hard_negative_recall": {m: (recall_xy[m] + recall_yx[m]) / 2 for m in recall_xy},
        "positive_probability": mean["positive_probability"],
        "similarity_percentiles": {
            str(p): v for p, v in zip(percents, np.percentile(negatives, percents), strict=True)
        },
        "similarity_histogram": histograms(S, embeddings, similarity, batches, orders[0], plan),
        "guard": None,
        "answers": answered(embeddings, batches),
        "coverage": counted(plan, n),
        "fresh": plan.metadata.fingerprint == embeddings.fingerprint,
        "bound_36": mean["bound_36"],
        "bound_37": mean["bound_37"],
        "qap_objective": objective,
        "bottleneck": bottleneck,
        "edge_recall": recall,
        "bandwidth": bandwidth,
        "positive_probability_random": mean["positive_probability_random"],
        "positive_probability_global": mean["positive_probability_global"],
        "hardness": 1 - mean["gap"] / gap_random,
        "false_negatives": None,
    }


def answered(embeddings, batches):
    """Known answers among the negatives, by the definition."""
    n = embeddings.num_rows
    widest = np.result_type(*(matrix.dtype for matrix in embeddings.matrices))
    anchors, *documents = (
        [(row + 0).astype(widest).tobytes() for row in matrix.rows(0, n)]  # -0 becomes 0
        for matrix in (embeddings.x, embeddings.y, *embeddings.negatives)
    )
    known = set(zip(anchors, documents[0], strict=True))
    if embeddings.missing is not None:
        for own, gone in zip(documents[1:], embeddings.missing, strict=True):
            own[:] = [None if is_gone else row for row, is_gone in zip(own, gone, strict=True)]
    exist = [sum(own[j] is not None for own in documents) for j in range(n)]
    met = [[sum((a, own[j]) in known for own in documents) for j in range(n)] for a in anchors]
    counts = [
        (
            i,
            sum(met[i][j] for j in batch if j != i),
            next((j for j in batch if j != i and met[i][j]), 0),
        )
        for batch in batches for i in batch
    ]  # fmt: skip
    negatives = sum((len(batch) - 1) * exist[j] for batch in batches for j in batch)
    total = sum(map(sum, met)) - sum(met[i][i] for i in range(n))
    found = sum(count for _, count, _ in counts)
    return {
        "negatives": negatives,
        "known": found,
        "share": found / negatives if negatives else None,
        "share_random": total / (sum(exist) * (n - 1)),
        "several": sum(len({d for b, d in known if b == a}) > 1 for a in anchors),
        "examples": [
            {
                "row": int(i), "other": int(other),
                "document": [(anchors[i], own[other]) in known for own in documents].index(True),
                "negatives": count,
            }
            for i, count, other in sorted(counts, key=lambda one: -one[1])[:10] if count
        ],
        "planned_with": [],
    }  # fmt: skip


def histograms(S, embeddings, similarity, batches, order, plan):
    bound = 1.0
    if similarity == "dot":
        x, *documents = (
            np.linalg.norm(matrix.rows(0, len(S)).astype(np.float64), axis=1).max()
            for matrix in (embeddings.x, embeddings.y, *embeddings.negatives)
        )
        bound = float(x * max(documents))
    edges = [bound * step / 20 for step in range(-20, 21)]

    def shares(batches):
        pairs = [S[i, j] for batch in batches for i in batch for j in batch if i != j]
        return (np.histogram(np.clip(pairs, -bound, bound), edges)[0] / len(pairs)).tolist()

    return {"edges": edges, "plan": shares(batches), "random": shares(batches_of(order, plan))}


def counted(plan, n):
    rows = plan.rows.tolist()
    return {
        "rows_seen": len(set(rows)),
        "rows_never_seen": n - len(set(rows)),
        "share_seen": len(set(rows)) / n,
        "repeats": len(rows) - len(set(rows)),
        "most_repeated": max(map(rows.count, rows)),
    }


def differences(got, expected, tolerance, where=""):
    """Where two results differ, keys and their order included."""
    if isinstance(expected, dict):
        if list(got) != list(expected):
            return [f"{where}: keys {list(got)}, expected {list(expected)}"]
        return [
            d for k in expected for d in differences(got[k], expected[k], tolerance, f"{where}/{k}")
        ]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(got, expected, strict=True))
        return [d for k, (a, b) in pairs for d in differences(a, b, tolerance, f"{where}/{k}")]
    if isinstance(expected, float) and isinstance(got, float):
        # A quotient such as random_z magnifies what float32 leaves uncertain.
        same = abs(got - expected) <= tolerance * max(1, abs(expected))
    else:
        same = got == expected and type(got) is not float
    return [] if same else [f"{where}: got {got!r}, expected {expected!r}"]


def clustered(n, d=12, *, paired=True, seed=0, dtype=np.float32, copies=0, mined=0, ragged=False):
    """Pairs in clusters, so that there are hard negatives; the first ``copies`` rows repeat.

    With ``mined`` negatives a row, of the same clusters, some of which are missing if ``ragged``,
    and one is the positive of another row.
    """
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(2, n // 8), d))
    x = centres[rng.integers(0, len(centres), n)] + 0.6 * rng.standard_normal((n, d))
    y = x + 0.5 * rng.standard_normal((n, d))
    for side in (x, y):
        side[n - copies :] = side[:copies]
    x, y = x.astype(dtype), y.astype(dtype) if paired else None
    if not mined:
        return Embeddings.from_arrays(x, y)
    negatives = (x[:, None] + rng.standard_normal((n, mined, d))).astype(dtype)
    negatives[0, 0] = (x if y is None else y)[n // 2]
    if ragged:
        negatives[rng.random((n, mined)) < 0.4] = 0
    return Embeddings.from_arrays(x, y, negatives=negatives)


def equal(one, other):
    """bool (N, N): whether a row of one is a row of the other."""
    return (one[:, None] == other).all(axis=2)


def broken_pairs(
    embeddings,
    similarity,
    *,
    relative_margin=None,
    absolute_margin=None,
    max_score=None,
    groups=None,
    judge=None,
):
    """By reason, bool (N, N): the pairs of different rows that break the guard."""
    S = dense(embeddings if judge is None else judge, similarity)
    n = len(S)
    x, y = (side.rows(0, n) for side in (embeddings.x, embeddings.y))
    mined = [side.rows(0, n) for side in embeddings.negatives]
    positive = np.diagonal(S)
    ceiling = np.full(n, np.inf)
    least = np.maximum(positive, sorted(positive)[(n - 1) // 2] - 1e-6)
    if relative_margin is not None:
        ceiling = least - np.abs(least) * relative_margin
    if absolute_margin is not None:
        ceiling = least - absolute_margin
    if max_score is not None:
        ceiling = np.full(n, float(max_score))
    code = np.full(n, -1) if groups is None else np.asarray(groups)
    # 1e-9: equal rows tie, but a share of a similarity is rounded
    limit = np.minimum.outer(ceiling, ceiling) - 1e-9
    similar = np.maximum(S, S.T) >= limit
    negative = np.zeros((n, n), bool)
    if judge is None:
        M = of_documents(embeddings, similarity, 1.0)[2]
        negative = np.maximum(M, M.T) >= limit
        for own in mined:
            answer = equal(y, own)
            negative |= answer | answer.T
    found = {
        "similarity": similar,
        "negative": negative & ~similar,
        "group": equal(code[:, None], code[:, None]) & (code >= 0),
        "duplicate": equal(x, x) | equal(y, y),
    }
    anchors = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    documents = np.unique(np.concatenate([y, *mined]), axis=0, return_inverse=True)[1]
    documents = documents.reshape(-1, n)
    pairs = set(zip(anchors.tolist(), documents[0].tolist(), strict=True))
    met = [[any((a, own[j]) in pairs for own in documents) for j in range(n)] for a in anchors]
    found["known"] = (np.array(met) | np.array(met).T) & ~found["duplicate"]
    for mask in found.values():
        np.fill_diagonal(mask, False)
    return found, ceiling


def mined_report(embeddings, similarity, ceiling, broken):
    """The whole of `MinedReport`."""
    S = dense(embeddings, similarity)
    near = [
        (number, row, value)
        for number, matrix in enumerate(embeddings.negatives)
        for row, value in enumerate(dense(replace(embeddings, y=matrix), similarity).diagonal())
        if embeddings.missing is None or not embeddings.missing[number, row]
    ]
    false = [one for one in near if one[2] >= ceiling[one[1]] - 1e-9]
    worst = sorted(false, key=lambda one: (ceiling[one[1]] - one[2], one[0], one[1]))[:10]
    return {
        "negatives": len(near),
        "false": len(false),
        "rows_affected": len({row for _, row, _ in false}),
        "broken": broken,
        "examples": [
            {
                "row": row,
                "negative": number + 1,
                "similarity": float(value),
                "positive": float(S[row, row]),
            }
            for number, row, value in worst
        ],
    }


def guard_report(
    plan, embeddings, *, temperature=0.05, similarity="cosine", random_trials=3, seed=0,
    limit_from="options", judge=None, **guard
):  # fmt: skip
    """The whole of `GuardReport`, for small N."""
    guard.pop("guard", None)  # groups alone
    S, forth, _ = of_documents(embeddings, similarity, temperature)
    n = len(S)
    by, ceiling = broken_pairs(embeddings, similarity, judge=judge, **guard)
    broken = np.logical_or.reduce(list(by.values()))
    by_negative = by.pop("negative")
    batches = [batch.tolist() for batch in plan.batches()]
    pairs = [(i, j) for batch in batches for i in batch for j in batch if i < j]

    def loss(batches):
        found = []
        for side in (forth, S.T):
            for batch in batches:
                among = np.ix_(batch, batch)
                met = np.where(broken[among], -np.inf, side[among] / temperature)
                found += list(np.logaddexp.reduce(met, axis=1) - S[batch, batch] / temperature)
        return float(np.mean(found))

    orders = [
        random_rows(Runtime(seed=seed).generator(_STREAM, t), n, plan.batch_offsets)
        for t in range(random_trials)
    ]
    train, everything = loss(batches), loss([range(n)])
    random = float(np.mean([loss(batches_of(order, plan)) for order in orders]))
    count = sum(bool(broken[pair]) for pair in pairs)
    gap_random = everything - random
    mined = {}
    if embeddings.negatives:
        together = sum(bool(by_negative[pair]) for pair in pairs)
        mined = mined_report(embeddings, similarity, ceiling, together)
    return {
        "reference": None if judge is None else judge.fingerprint,
        "planned_reference": None,
        "without_groups": False,
        "relative_margin": guard.get("relative_margin"),
        "absolute_margin": guard.get("absolute_margin"),
        "max_score": guard.get("max_score"),
        "limit_from": limit_from,
        "pairs": len(pairs),
        "broken": count,
        "false_negatives": count / len(pairs) if pairs else None,
        "false_negatives_random": float(broken.sum() / (n * (n - 1))),
        "by": {reason: sum(bool(mask[pair]) for pair in pairs) for reason, mask in by.items()},
        "rows_affected": len({row for pair in pairs if broken[pair] for row in pair}),
        "loss_train": train,
        "loss_global": everything,
        "loss_random": random,
        "gap": everything - train,
        "hardness": 1 - (everything - train) / gap_random if abs(gap_random) > 1e-4 else 0.0,
        **({"mined": mined} if mined else {}),
    }


def make_plan(embeddings, batch_size, tail="keep", seed=0):
    n = embeddings.num_rows
    order = np.random.default_rng(seed).permutation(n)
    return Plan.cut(
        order,
        Batching(batch_size, tail=tail),
        num_rows=n,
        fingerprint=embeddings.fingerprint,
    )


@pytest.fixture(scope="session")
def helpers():
    """The functions above, for tests that cannot import this file."""

    class Helpers:
        pass

    functions = (brute_force, differences, clustered, make_plan, dense, batches_of)
    for function in (*functions, broken_pairs, guard_report):
        setattr(Helpers, function.__name__, staticmethod(function))
    return Helpers
