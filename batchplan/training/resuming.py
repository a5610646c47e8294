"""Where a Trainer resumes, and whether that is where its checkpoint was saved."""

from typing import Any

from transformers import TrainerCallback

from batchplan.errors import InputError
from batchplan.training.checks import digest_of
from batchplan.training.runs import STATE

_ROUNDING = 1e-9  # of epochs: more than the error of a float, less than a step


def place(args: Any, state: Any, steps: int) -> tuple[int, int]:
    """Return the epoch in which a training begins or resumes, and the steps of it that were taken.
    ``steps`` is their number in a whole epoch."""
    accumulated = args.gradient_accumulation_steps
    epoch, updates = divmod(state.global_step, max(-(-steps // accumulated), 1))
    return epoch, updates * accumulated


def checked_place(args: Any, state: Any, steps: int) -> tuple[int, int]:
    """As `place`. Raises InputError if the checkpoint was saved elsewhere in an epoch."""
    epoch, begun = place(args, state, steps)
    if state.global_step and abs(state.epoch - (at := epoch + begun / steps)) > _ROUNDING:
        raise InputError(
            f"checkpoint: is at epoch {state.epoch:.2f}, but the trainer goes on at {at:.2f}, as "
            "it counts updates with "
            f"gradient_accumulation_steps={args.gradient_accumulation_steps}; resume with those "
            "of the checkpoint's run"
        )
    return epoch, begun


def keep(state: Any, begun: int, **digests: str | None) -> None:
    """Let the checkpoints of a trainer name the plan of the epoch, and the data set.

    Args:
        state: of the trainer.
        begun: steps of the epoch that were taken when the training began or resumed.
        digests: by name, such as ``plan``; that of the plan that the epoch began with.

    Raises:
        InputError: it resumes within the epoch from a checkpoint of another one.
    """
    kept = state.stateful_callbacks.setdefault(STATE, {})
    for name, digest in digests.items():
        if begun and (before := kept.get(name, digest)) != digest:
            raise InputError(
                f"{name}: is another one than the checkpoint's, which is at step {begun} of its "
                f"epoch (digest {digest}, expected {before}); go on with that one"
            )
    kept |= digests


class _SinglePlan(TrainerCallback):
    """Requires that a trainer resumes within an epoch with the plan and data of its checkpoint.

    Args:
        steps: of each epoch.
        digests: see `keep`.
    """

    def __init__(self, steps: int, **digests: str | None) -> None:
        self._steps, self._digests = steps, digests

    def on_train_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        _, begun = checked_place(args, state, self._steps)
        keep(state, begun, **self._digests)


def follow(trainer: Any, sampler: Any, dataset: Any) -> None:
    """Let the checkpoints of a trainer name the single plan and the data set that it trains on."""
    trainer.remove_callback(_SinglePlan)  # of an earlier training
    steps = len(sampler) // sampler.plan.metadata.world_size
    trainer.add_callback(_SinglePlan(steps, plan=sampler.plan.digest, data=digest_of(dataset)))
