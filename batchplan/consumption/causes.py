"""Causes of steps that differ from the plan: the table `CAUSES`, and which causes apply."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from batchplan.consumption import rules
from batchplan.consumption.epochs import Epoch


class Cause(NamedTuple):
    """A cause of steps that differ from the plan.

    Attributes:
        name: two or three words.
        rule: returns details if the cause applies to an epoch that is not exact, else None.
        sentence: what happened.
        mend: what to do.
    """

    name: str
    rule: Callable[[Epoch], str | None]
    sentence: str
    mend: str


# fmt: off
#: Mistakes with a pattern of their own in the steps, the most special first.
SPECIAL = (
    Cause("zero steps", rules.zero_steps, "The loader yielded no batch, without an error.",
          "set the batch size per device to the plan's, and the number of devices"),
    Cause("single rows", rules.single_rows, "Each step trained on a single row.",
          "pass the sampler as batch_sampler; with sentence-transformers, batch_sampler=plans"),
    Cause("another number of devices", rules.other_devices,
          "The plan is for more devices than trained, or for fewer.",
          "plan again with --world-size"),
    Cause("the whole plan on every rank", rules.whole_plan, "Every rank trained on all batches.",
          "pass rank and world_size to PlanBatchSampler, from torch.distributed"),
    Cause("the same part on every rank", rules.same_part, "All ranks trained on the part of one.",
          "pass each process its own rank"),
    Cause("dealt out twice", rules.dealt_twice, "The part of a rank was dealt out again.",
          'deal the plan out once: an adapter of docs/frameworks.md, or rank="all" under '
          "Accelerate"),
    Cause("dealt out row by row", rules.dealt_by_row, "A DistributedSampler dealt single rows out.",
          "pass the plan as batch_sampler, and no DistributedSampler"),
    Cause("last epoch's plan", rules.last_plan, "An epoch trained on the plan of another.",
          "call set_epoch on the PlanBatchSampler itself, also after a restart, or use an adapter"),
    Cause("restarted at batch 0", rules.restarted, "A resumed run began the epoch's plan again.",
          "store and load the loader's state, or use an adapter, which does"),
    Cause("another plan", rules.other_plan, "The loader had a plan that is none of these.",
          "give the plans of this run, or let it go on with its own"),
    Cause("other rows", rules.other_rows, "Steps saw rows that are not in the plan.",
          "train on the data that was planned, in the same order"),
    Cause("padded from the first batches", rules.padded,
          "Rows of the first batches filled the last step.",
          'plan with --world-size, and let the sampler have no batch_size (rank="all")'),
    Cause("unequal steps", rules.unequal, "Ranks differ in their number of steps: DDP would hang.",
          "plan with --world-size for as many devices as train"),
    Cause("tail dropped", rules.tail_dropped, "The last step is missing.",
          "set drop_last=False (dataloader_drop_last), or plan with --tail drop or --tail pad"),
    Cause("another batch size", rules.batch_size,
          "Steps are larger or smaller than the plan's batches.",
          "set the trainer's batch size per device to the plan's, or plan again with --batch-size"),
    Cause("split across workers", rules.workers,
          "Workers read shards that were not written for them.",
          "batchplan materialize --workers K, with the loader's num_workers"),
)
#: If no special cause applies, the first of these that does is reported.
GENERAL = (
    Cause("ended early", rules.stopped, "The trace ends before the plan.",
          "let the epoch end; --partial accepts a run that goes on"),
    Cause("another order", rules.reordered, "Batches are intact, but missing or in other places.",
          "shuffle no batches, read materialized data with the number of workers that they were "
          "written for, and join several data sets into one plan"),
    Cause("shuffled", rules.shuffled, "Rows were shuffled into other batches.",
          "pass the plan as batch_sampler, shuffle nothing; Lightning: use_distributed_sampler="
          "False"),
    Cause("no known pattern", rules.intact, "Steps differ in another way.",
          "look at the rows of the first step that differs"),
)
CAUSES = SPECIAL + GENERAL
# fmt: on


def causes_of(epoch: Epoch) -> list[tuple[Cause, str]]:
    """Return the causes that apply to an epoch that is not exact, and their details.

    The most special cause is first.
    """
    return list(_applying(SPECIAL, epoch)) or [next(_applying(GENERAL, epoch))]


def _applying(causes: Sequence[Cause], epoch: Epoch) -> Iterator[tuple[Cause, str]]:
    for cause in causes:
        if (detail := cause.rule(epoch)) is not None:
            yield cause, detail
