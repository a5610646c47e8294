"""How the texts of a training are embedded: prompts, tasks and the number of texts per batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import cuda

from batchplan.errors import InputError

Result = TypeVar("Result")


class BatchSize:
    """The number of texts per batch: doubled after each call, and halved for good when a GPU lacks
    memory.

    Args:
        size: of the first batches.
        most: of the largest batches.
    """

    def __init__(self, size: int, most: int) -> None:
        self._size, self._most = size, most

    def fitted(self, work: Callable[[int], Result]) -> Result:
        """Return the result of ``work(size)``, called again with half the size while a GPU lacks
        memory.

        Raises:
            torch.OutOfMemoryError: there is no room for a single text.
        """
        while True:
            try:
                result = work(self._size)
            except cuda.OutOfMemoryError:
                if self._size == 1:
                    raise
                self._size = self._most = self._size // 2
                cuda.empty_cache()
            else:
                self._size = min(2 * self._size, self._most)
                return result


def prompting(args: Any, name: str, columns: Sequence[str], usual: Sequence[str]) -> list[Any]:
    """Return the arguments ``prompt`` and ``task`` with which a training embeds each column of
    texts.

    Args:
        args: the training arguments.
        name: the name of the data set, "" if there is only one.
        columns: the names of the columns.
        usual: their tasks if ``args`` name none; "" for no task.

    Raises:
        InputError: ``args`` have prompts of several data sets, but none for this one.
    """
    tasks, prompts = _of_set(args.router_mapping, name), _of_set(args.prompts, name)
    if isinstance(prompts, str):
        prompts = dict.fromkeys(columns, prompts)
    if any(isinstance(own, dict) for own in prompts.values()):
        raise InputError(
            "prompts: got prompts of several data sets, but none for this one; map column names to "
            "prompts"
        )
    asked = []
    for column, task in zip(columns, usual, strict=True):
        task = tasks.get(column, task)
        # "" and not None: the training adds no default prompt
        asked.append({"prompt": prompts.get(column, ""), **({"task": task} if task else {})})
    return asked


def _of_set(given: Any, name: str) -> Any:
    """Return the prompts or tasks of a data set, from a dictionary by data set, or from what all
    share."""
    given = given or {}
    return given[name] if isinstance(given, Mapping) and name in given else given
