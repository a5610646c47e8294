"""An observer for tests of what runs report."""

from collections import Counter


class Observer:
    """Keeps what it is told."""

    def __init__(self):
        self.begun, self.notes = [], []
        self.totals, self.done, self.seconds = {}, Counter(), {}

    def start(self, stage, total):
        self.begun.append(stage)
        self.totals[stage], self.done[stage] = total, 0

    def advance(self, stage, steps):
        self.done[stage] += steps

    def finish(self, stage, seconds):
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def note(self, name, value):
        self.notes.append(f"{name}: {value}")
