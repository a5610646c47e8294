"""Each cause is named from what the steps saw."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from batchplan.consumption import Trace, verify
from batchplan.consumption.causes import CAUSES

from .conftest import names, parts_of, plan_of, write

devices = pytest.mark.parametrize("count", [2, 4])


def flat(parts):
    return list(chain(*parts))


def cut(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(
    "options", [{}, {"tail": "drop"}, {"tail": "pad"}, {"scope": "global", "tail": "pad"}]
)
def test_exact(count, options, judged):
    plan = plan_of(count, **options)
    parts = parts_of(plan)
    verdict = judged(plan, parts, parts)
    assert verdict.exact
    assert verdict.findings == {}
    assert verdict.steps == 2 * count * len(parts[0])
    assert verdict.intact == (verdict.steps, verdict.steps)


def test_rows_of_a_batch_may_come_in_any_order(judged):
    plan = plan_of(2)
    parts = [[batch[::-1] for batch in own] for own in parts_of(plan)]
    assert judged(plan, parts).exact


@devices
def test_dealt_out_twice(count, judged):
    plan = plan_of(count)
    parts = [own[rank::count] for rank, own in enumerate(parts_of(plan))]
    verdict = judged(plan, parts)
    assert names(verdict) == ["dealt out twice"]
    (found,) = verdict.findings.values()
    lost = 1003 - sum(map(len, flat(parts)))
    assert found[0][1] == f"{lost} of 1,003 rows are lost"


def test_where_it_first_goes_wrong(judged):
    plan = plan_of(2)
    parts = parts_of(plan)
    verdict = judged(plan, parts, [own[rank::2] for rank, own in enumerate(parts)])
    first = verdict.first
    assert (first.epoch, first.step, first.rank) == (1, 0, 1)
    assert first.expected == parts[1][0]
    assert first.seen == parts[1][1]
    (found,) = verdict.findings.values()
    assert [number for number, _ in found] == [1]


def test_dealt_out_row_by_row(judged):
    plan = plan_of()
    rows = plan.rows.tolist()
    parts = [cut((rows + rows[:1])[rank::2], 16) for rank in range(2)]
    assert names(judged(plan, parts)) == ["dealt out row by row"]


def test_a_plan_of_one_device_is_dealt_out_by_batch(judged):
    plan = plan_of(rows=64 * 16)
    assert judged(plan, parts_of(plan, 2)).exact


def test_unequal_steps(judged):
    plan = plan_of()
    verdict = judged(plan, parts_of(plan, 2))
    assert names(verdict) == ["unequal steps"]
    (found,) = verdict.findings.values()
    assert found[0][1] == "32, 31 steps on ranks 0 to 1"
    assert verdict.first.rank == 1
    assert (verdict.first.step, verdict.first.expected, verdict.first.seen) == (31, None, None)


def test_padded_from_the_first_batches(judged):
    """As Accelerate fills the steps of a plan for one device: 21 rows of the first batches."""
    plan = plan_of()
    parts = parts_of(plan, 2)
    first = plan.rows.tolist()[:32]
    parts[0][31] = parts[0][31] + first[:5]
    parts[1].append(first[5:21])
    verdict = judged(plan, parts)
    assert names(verdict) == ["padded from the first batches"]
    (found,) = verdict.findings.values()
    assert found[0][1] == "21 rows"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_tail_dropped(count, judged):
    plan = plan_of(count)
    verdict = judged(plan, [own[:-1] for own in parts_of(plan)])
    assert names(verdict) == ["tail dropped"]
    (found,) = verdict.findings.values()
    assert found[0][1].startswith(f"{1003 % (16 * count)} rows")


@devices
def test_last_epochs_plan(count, judged):
    plans = {0: plan_of(count), 1: plan_of(count, seed=1)}
    parts, others = map(parts_of, plans.values())
    assert judged(plans, parts, others).exact
    assert names(judged(plans, parts, parts)) == ["last epoch's plan"]
    verdict = judged(
        plans, parts, [[*own[:7], *old[7:]] for own, old in zip(others, parts, strict=True)]
    )
    assert names(verdict) == ["last epoch's plan"]
    (found,) = verdict.findings.values()
    assert found[0][1] == "epoch 1 got the plan of epoch 0 from step 7 on"


@devices
def test_the_whole_plan_on_every_rank(count, judged):
    for plan in (plan_of(), plan_of(count)):
        order = [batch.tolist() for batch in plan.batches()]
        assert names(judged(plan, [order] * count)) == ["the whole plan on every rank"]


@devices
def test_the_same_part_on_every_rank(count, judged):
    plan = plan_of(count)
    verdict = judged(plan, [parts_of(plan)[1]] * count)
    assert names(verdict) == ["the same part on every rank"]


@pytest.mark.parametrize("count", [1, 2])
def test_shuffled(count, judged):
    plan = plan_of(count)
    rows = np.random.default_rng(3).permutation(1003).tolist()
    parts = [cut(rows[rank::count], 16) for rank in range(count)]
    verdict = judged(plan, parts)
    assert names(verdict) == ["shuffled"]
    assert verdict.intact == (0, sum(map(len, parts_of(plan))))


@pytest.mark.parametrize("seed", range(20))
def test_batches_in_another_order(seed, judged):
    plan = plan_of(size=5)
    (own,) = parts_of(plan)
    order = np.random.default_rng(seed).permutation(len(own))
    verdict = judged(plan, [[own[batch] for batch in order]])
    assert names(verdict) == ["another order"]
    assert names(judged(plan, [own[:20] + own[41:]])) == ["another order"]


@pytest.mark.parametrize("count", [1, 2])
def test_zero_steps(count, judged):
    plan = plan_of(count)
    assert names(judged(plan, [[]] * count)) == ["zero steps"]
    assert names(judged(plan, [[]] * count, ended=False)) == ["zero steps"]
    assert names(judged(plan, parts_of(plan), [[]] * count)) == ["zero steps"]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("shard", [96, 100, 250])
def test_split_across_workers(workers, shard, judged):
    """Shards of so many rows in turn, whose workers yield batches in turn."""
    plan = plan_of()
    shards = cut(plan.rows.tolist(), shard)
    streams = [cut(flat(shards[worker::workers]), 16) for worker in range(workers)]
    batches = [
        stream[step] for step in range(max(map(len, streams)))
        for stream in streams if step < len(stream)
    ]  # fmt: skip
    verdict = judged(plan, [batches])
    assert names(verdict) == ["split across workers"]
    (found,) = verdict.findings.values()
    assert found[0][1].startswith(f"{workers} workers; ")


@pytest.mark.parametrize("size", [2, 8, 17, 32, 48])
def test_another_batch_size(size, judged):
    plan = plan_of()
    verdict = judged(plan, [cut(plan.rows.tolist(), size)])
    assert names(verdict) == ["another batch size"]
    (found,) = verdict.findings.values()
    assert found[0][1] == f"{size} rows, expected 16"


def test_single_rows(judged):
    plan = plan_of()
    assert names(judged(plan, [cut(plan.rows.tolist(), 1)])) == ["single rows"]


def test_another_number_of_devices(judged):
    plan = plan_of(2)
    assert names(judged(plan, parts_of(plan)[:1])) == ["another number of devices"]


def test_another_plan(judged):
    plan, other = plan_of(2), plan_of(2, seed=1)
    verdict = judged(plan, parts_of(other), digests=[other.digest])
    assert names(verdict) == ["another plan"]
    assert judged(plan, parts_of(plan), digests=[plan.digest]).exact


def test_other_rows(judged):
    plan = plan_of()
    (own,) = parts_of(plan)
    verdict = judged(plan, [[[row + 900 for row in batch] for batch in own]])
    assert names(verdict) == ["other rows"]


def test_no_known_pattern(judged):
    plan = plan_of()
    (own,) = parts_of(plan)
    own[5] = [*own[5][:-1], own[6][0]]
    verdict = judged(plan, [own])
    assert names(verdict) == ["no known pattern"]
    assert verdict.intact == (62, 63)


def test_a_run_that_has_not_ended(judged):
    plan = plan_of(2)
    parts = [own[:20] for own in parts_of(plan)]
    verdict = judged(plan, parts, ended=False)
    assert names(verdict) == ["ended early"]
    assert (verdict.first.step, verdict.first.seen) == (20, None)
    assert judged(plan, parts, ended=False, partial=True).exact
    wrong = [own[1:] for own in parts]
    assert not judged(plan, wrong, ended=False, partial=True).exact


def test_epochs_without_a_trace(judged):
    plans = {0: plan_of(), 1: plan_of(seed=1)}
    parts = parts_of(plans[0])
    assert names(judged(plans, parts)) == ["ended early"]
    assert judged(plans, parts, partial=True).exact


def test_a_trace_that_begins_late(judged):
    """Of epochs whose plans are gone nothing is said; nor of steps before the recorder."""
    plans = {2: plan_of(2), 3: plan_of(2, seed=1)}
    parts, others = map(parts_of, plans.values())
    verdict = judged(plans, parts, parts, parts, others)
    assert verdict.exact
    assert verdict.skipped == [0, 1]
    verdict = judged(plans, [own[7:] for own in parts], others, first=(2, 7))
    assert verdict.exact
    assert verdict.steps == 2 * (32 - 7) + 2 * 32


@devices
def test_restarted_at_batch_0(count, tmp_path):
    """The run stopped after step 6, and went on at step 7 with the batches of step 0."""
    plan = plan_of(count)
    parts = parts_of(plan)
    folder = write(tmp_path / "trace", [[own[:7] for own in parts]], ended=False)
    for rank, own in enumerate(parts):
        lines = [{"start": {"rank": rank, "world_size": count}}]
        lines += [
            {"epoch": 0, "step": 7 + step, "rows": rows, "plan": None}
            for step, rows in enumerate(own[: len(own) - 7])
        ]
        with open(folder / f"trace.{rank}.jsonl", "a") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines)
    verdict = verify({0: plan}, Trace(folder))
    assert names(verdict) == ["restarted at batch 0"]
    assert verdict.first.step == 7


def test_every_cause_is_tested():
    """The table of causes has no more than this file provokes."""
    source = Path(__file__).read_text()
    assert [cause.name for cause in CAUSES if f'["{cause.name}"' not in source] == []
