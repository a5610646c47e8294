"""Plans, and traces of trainings that follow them or not."""

import json

import numpy as np
import pytest

from batchplan.consumption import Trace, verify
from batchplan.plans import Batching, Plan

ROWS = 1003


def plan_of(devices=1, size=16, rows=ROWS, seed=0, **options):
    order = np.random.default_rng(seed).permutation(rows)
    return Plan.cut(order, Batching(size, world_size=devices, **options), num_rows=rows)


def parts_of(plan, devices=None):
    """The rows of each step of each rank, from the plan's rows and offsets alone."""
    size = plan.metadata.world_size
    batches = [batch.tolist() for batch in plan.batches()]
    if plan.metadata.scope == "global":
        return [
            [np.array_split(batch, size)[rank].tolist() for batch in batches]
            for rank in range(size)
        ]
    count = devices or size
    return [batches[rank::count] for rank in range(count)]


def write(folder, epochs, *, ended=True, digests=(), first=(0, 0)):
    """Traces of epochs: for each a list ``[rank][step]`` of rows."""
    folder.mkdir(exist_ok=True)
    for rank in range(len(epochs[0])):
        lines = [{"start": {"rank": rank, "world_size": len(epochs[0])}}]
        for number, ranks in enumerate(epochs):
            begin = first[1] if number == 0 else 0
            digest = digests[number] if digests else None
            lines += [
                {"epoch": number + first[0], "step": begin + step, "rows": rows, "plan": digest}
                for step, rows in enumerate(ranks[rank])
            ]
            if ended:
                lines.append({"epoch": number + first[0], "end": begin + len(ranks[rank])})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"trace.{rank}.jsonl").write_text(text)
    return folder


@pytest.fixture
def judged(tmp_path):
    """The verdict on epochs of rows, each with the plan, or with a plan of its own."""

    def judged(plans, *epochs, partial=False, **options):
        plans = plans if isinstance(plans, dict) else {0: plans}
        trace = Trace(write(tmp_path / "trace", epochs, **options))
        return verify(plans, trace, partial=partial)

    return judged


def names(verdict):
    return [cause.name for cause in verdict.findings]
