"""Calls that type checkers must accept, and calls that they must refuse: ``make lint`` runs mypy
and pyright on this file. Both complain of a comment that silences nothing."""

from typing import Any, assert_type

import batchplan
from batchplan.comparison import Comparison
from batchplan.materialize import materialize
from batchplan.planners import PLANNERS
from batchplan.report import write_report
from batchplan.training import EpochPlans
from batchplan.training.sentence_transformers import PlannedEpochs


def accepted(x: Any, y: Any) -> None:
    """Every call is right."""
    plan = assert_type(batchplan.plan(x, y), batchplan.Plan)
    batchplan.plan(x, batch_size=32, mega_batches="auto", memory="8GB", device="cpu", seed=3)
    batchplan.plan(x, y, planner="partition", mega_batches=2, relative_margin=None)
    batchplan.plan(x, y, planner="gcbs", quantile=0.99, refine=1, tail="drop")
    batchplan.plan(x, y, planner="hardneg", as_batches=True)
    for name in PLANNERS:
        batchplan.plan(x, y, planner=name, batch_size=32)
    found = assert_type(
        batchplan.evaluate(plan, x, y, random_trials=3, memory=10**9), batchplan.Evaluation
    )
    assert_type(plan.to_dict(), dict[str, Any])
    print(plan == plan, found.to_pandas()["value"])
    batchplan.refine(plan, x, y, passes=2, neighbors=9)
    assert_type(batchplan.mine_negatives(x, y, per_row=3), batchplan.Negatives)
    batchplan.mine_negatives(x, y, planner="scns", level="class")
    assert_type(batchplan.compare("x.npy", "y.npy", planners=["gcbs"], sample=100), Comparison)
    batchplan.embed("model", "pairs.parquet", "vectors", columns="anchor,positive", device="cuda")
    materialize(plan, "pairs.parquet", "planned", format="mds", memory="2GB")
    write_report({"a": plan}, batchplan.load_embeddings("x.npy"), "a.html", random_trials=3)
    EpochPlans("plans", "gcbs", embed=x, num_rows=9, quantile=0.9, ahead=0.5, memory="8GB")
    PlannedEpochs(x, y, mega_batches=2, embeddings="fresh", keep=2)


def refused(x: Any, y: Any, plan: batchplan.Plan) -> None:
    """Every call has a mistake."""
    batchplan.plan(x, y, "gcbs")  # type: ignore  # pyright: ignore
    batchplan.plan(x, y, batchsize=8)  # type: ignore  # pyright: ignore
    batchplan.plan(x, y, batch_size="8")  # type: ignore  # pyright: ignore
    batchplan.plan(x, y, planner="rwr", walk="dfs")  # type: ignore  # pyright: ignore
    batchplan.plan(x, y, tail="half")  # type: ignore  # pyright: ignore
    batchplan.evaluate(plan, x, y, trials=3)  # type: ignore  # pyright: ignore
    batchplan.refine(plan, x, y, refine=2)  # type: ignore  # pyright: ignore
    batchplan.compare("x.npy", planners="gcbs", samples=3)  # type: ignore  # pyright: ignore
    batchplan.embed("model", "pairs.parquet", "out", column="a")  # type: ignore  # pyright: ignore
    batchplan.mine_negatives(x, y, per_rows=3)  # type: ignore  # pyright: ignore
    EpochPlans("plans", embed=x, num_rows=9, quantile="0.9")  # type: ignore  # pyright: ignore
    EpochPlans("plans", embed=x, num_rows=9, progress=0.5)  # type: ignore  # pyright: ignore
    PlannedEpochs(x, y, epoch=3)  # type: ignore  # pyright: ignore
    PlannedEpochs(x, y, megabatches=2)  # type: ignore  # pyright: ignore
    materialize(plan, "pairs.parquet", "planned", format="csv")  # type: ignore  # pyright: ignore
