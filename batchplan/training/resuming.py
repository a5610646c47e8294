"""Where a Trainer resumes, and whether that is where its checkpoint was saved."""

from typing import Any

from transformers import TrainerCallback

from batchplan.errors import InputError
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


def keep_plan(state: Any, digest: str, begun: int) -> None:
    """Let the checkpoints of a trainer name the plan of the epoch.

    Args:
        state: of the trainer.
        digest: of the plan that the epoch began with.
        begun: steps of the epoch that were taken when the training began or resumed.

    Raises:
        InputError: it resumes within the epoch from a checkpoint of another plan.
    """
    kept = state.stateful_callbacks.setdefault(STATE, {})
    if begun and (before := kept.get("plan", digest)) != digest:
        raise InputError(
            f"plan: is another one than the checkpoint's, which is at step {begun} of its "
            f"epoch (digest {digest}, expected {before}); go on with that plan"
        )
    kept["plan"] = digest


class _SinglePlan(TrainerCallback):
    """Requires that a trainer resumes within an epoch with the plan of its checkpoint.

    Args:
        digest: of the plan.
        steps: of each epoch.
    """

    def __init__(self, digest: str, steps: int) -> None:
        self._digest, self._steps = digest, steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        _, begun = checked_place(args, state, self._steps)
        keep_plan(state, self._digest, begun)


def follow(trainer: Any, sampler: Any) -> None:
    """Let the checkpoints of a trainer name the single plan that it trains on."""
    trainer.remove_callback(_SinglePlan)  # of an earlier training
    steps = len(sampler) // sampler.plan.metadata.world_size
    trainer.add_callback(_SinglePlan(sampler.plan.digest, steps))
