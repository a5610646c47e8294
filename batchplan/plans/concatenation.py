"""Joins plans of parts of the data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from batchplan.data.answer_options import APART
from batchplan.errors import InputError
from batchplan.options import BatchOrder, ShardOrder
from batchplan.plans.batching import Batching
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, take_batches
from batchplan.typing import BoolArray, Int64Array

_ALIKE = ("batch_size", "tail", "scope", "world_size")


def concat(
    plans: Mapping[str, Plan],
    *,
    batch_order: BatchOrder = "shuffled",
    seed: int = 0,
    turns: Int64Array | None = None,
) -> Plan:
    """Join plans of parts of the data, such as shards that were planned separately.

    The parts follow one another: row r of a part becomes r plus the number of rows of the parts
    before it. Batches keep their rows.

    Args:
        plans: of the parts, in the order of the data, by names for messages.
        batch_order: ``planned``: the steps of each part in turn. ``shuffled``: the steps of all
            parts in random order, with steps that a tail made short or filled up at the end.
        seed: of that order.
        turns: int64 (steps,), the number of the part that each step is taken from, instead of
            ``batch_order``. A part gives its steps in their order, and starts again after its last
            one.

    Raises:
        InputError: fewer than two plans; they are cut in different ways, or made for files in
            different orders without ids; or one that does not say for how many rows it is.
    """
    if len(plans) < 2:
        raise InputError(f"plans: got {len(plans)}, expected at least two to join")
    parts = list(plans.values())
    first_name, first = next(iter(plans.items()))
    for name, plan in plans.items():
        if not plan.metadata.planner:
            raise InputError(
                f"{name}: has no metadata, so the number of rows of its part is unknown; join "
                "plans as batchplan saves them"
            )
        for what in _ALIKE:
            if (got := getattr(plan.metadata, what)) != (expected := getattr(first.metadata, what)):
                raise InputError(
                    f"{name}: its {what.replace('_', ' ')} is {got}, but {expected} in "
                    f"{first_name}; plan all parts alike"
                )
    counts = np.array([plan.metadata.num_rows for plan in parts])
    shifts = np.cumsum(counts) - counts
    rows = np.concatenate([plan.rows + shift for plan, shift in zip(parts, shifts, strict=True)])
    offsets = np.append(0, np.cumsum(np.concatenate([np.diff(p.batch_offsets) for p in parts])))
    at_once = batches_per_step(first.metadata.world_size, first.metadata.scope)
    steps = np.array([len(plan) // at_once for plan in parts])
    if turns is not None:
        order = _in_turn(turns, steps)
    elif batch_order == "shuffled":
        shuffle = np.random.Generator(np.random.Philox(seed))
        last = np.concatenate([_of_tail(plan, at_once) for plan in parts])
        order = np.concatenate([shuffle.permutation(np.flatnonzero(~last)), np.flatnonzero(last)])
    else:
        order = np.arange(steps.sum())
    rows, offsets = take_batches(
        rows, offsets, (order[:, None] * at_once + np.arange(at_once)).ravel()
    )
    batching = Batching(
        **{what: getattr(first.metadata, what) for what in _ALIKE}, batch_order=batch_order
    )
    once = turns is None or np.array_equal(np.bincount(turns, minlength=len(parts)), steps)
    whole = once and all(plan.metadata.partitions_rows for plan in parts)
    ids_digest = _joined_digest([plan.metadata for plan in parts])
    metadata = PlanMetadata.stamped(
        batching, int(counts.sum()), whole,
        planner="concat", options=_options_of(parts), seed=seed,
        shard_order=_joined_order(plans, ids_digest is not None), ids_digest=ids_digest,
    )  # fmt: skip
    return Plan(rows, offsets, metadata)


def _options_of(parts: list[Plan]) -> dict[str, Any]:
    """Return the digests of the parts, and what keeps their rows apart. The label table of a part
    has no other rows, so it is left out."""
    options: dict[str, Any] = {"plans": [plan.digest for plan in parts]}
    for name in APART:
        found = [value for plan in parts if (value := plan.metadata.options.get(name))]
        if found and name != "label_table":
            alike = found.count(found[0]) == len(found)
            options[name] = found[0] if alike else _distinct(found)
    return options


def _joined_order(plans: Mapping[str, Plan], compared: bool) -> ShardOrder | None:
    """Return the order of the files of all parts; None if it makes no difference, or differs but
    ids are ``compared``. Raises InputError if it differs otherwise."""
    orders = {order: name for name, plan in plans.items() if (order := plan.metadata.shard_order)}
    if len(orders) > 1 and not compared:
        (one, first), (other, name) = orders.items()
        raise InputError(
            f"{name}: of files in {other} order, but those of {first} are in {one} order, so that "
            "no order of all files has the rows of both; plan all parts alike"
        )
    return next(iter(orders)) if len(orders) == 1 else None


def _joined_digest(parts: list[PlanMetadata]) -> str | None:
    """Return the digests of the ids of parts, each with its number of rows, as `check_digest` reads
    them; None unless all have ids."""
    digests = [
        digest if "*" in digest else f"{digest}*{part.num_rows}"
        for part in parts
        if (digest := part.ids_digest)
    ]
    return " ".join(digests) if len(digests) == len(parts) else None


def _distinct(values: list[Any]) -> list[Any]:
    """Return values, and those of lists among them, once each; files may have anything."""
    out: list[Any] = []
    for value in values:
        out += [one for one in (value if isinstance(value, list) else [value]) if one not in out]
    return out


def _in_turn(turns: Int64Array, steps: Int64Array) -> Int64Array:
    """Return the number of the step that each turn takes; steps are counted part after part.

    Args:
        turns: int64 (turns,), the part of each turn.
        steps: int64 (parts,), how many steps each part has.
    """
    grouped = np.argsort(turns, kind="stable")
    taken = np.bincount(turns, minlength=len(steps))
    before = np.empty(len(turns), np.int64)  # how often a part was taken from
    before[grouped] = np.arange(len(turns)) - np.repeat(np.cumsum(taken) - taken, taken)
    first: Int64Array = np.cumsum(steps) - steps
    return first[turns] + before % steps[turns]


def _of_tail(plan: Plan, at_once: int) -> BoolArray:
    """Return whether the tail made each step of a plan: the last one, if it is short or repeats
    rows."""
    sizes = np.diff(plan.batch_offsets).reshape(-1, at_once)
    made = np.array((sizes < plan.batch_size).any(axis=1))
    made[-1] |= plan.metadata.tail == "pad" and not plan.metadata.partitions_rows
    return made
