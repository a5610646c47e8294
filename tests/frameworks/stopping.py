"""Trainers that are interrupted."""

from transformers import TrainerCallback


class Stop(TrainerCallback):
    """Saves a checkpoint after a step, or after the end of its epoch (a half more), and ends."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, *, more=0, **_others):
        if state.global_step + more == self.step:
            control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args, state, control, **_others):
        Stop.on_step_end(self, args, state, control, more=0.5)


class Interrupt(Stop):
    """Ends as Ctrl-C does, in a step."""

    def on_step_end(self, args, state, control, **_others):
        if state.global_step == self.step:
            raise KeyboardInterrupt
