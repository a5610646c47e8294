"""The vectors that a model of sentence-transformers returns in the steps of its training."""

from typing import Any

from torch import Tensor


class StepOutputs:
    """Keeps what a model returns in the step that is under way.

    A hook of the model does so. It is removed at the end of the training and if a step fails.
    Outside of steps, as after an error of something else, it keeps nothing.
    """

    def __init__(self) -> None:
        self._vectors: list[Tensor] = []  # one after the other
        self._hook: Any = None
        self._in_step = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_vectors": [], "_hook": None, "_in_step": False}  # for checkpoints

    def follow(self, trainer: Any) -> None:
        """Let the trainer say when a step is under way."""
        train = trainer.training_step
        if getattr(train, "followed_by", None) is self:
            return

        def training_step(*inputs: Any, **others: Any) -> Any:
            self._in_step = True
            try:
                return train(*inputs, **others)
            except BaseException:
                self.end()
                raise
            finally:
                self._in_step = False

        training_step.followed_by = self  # type: ignore[attr-defined]
        trainer.training_step = training_step

    def begin(self, model: Any) -> None:
        """Listen to a model, and to no other."""
        self.end()
        # The last module and not the model, as losses may replace the model's forward method.
        self._hook = model[-1].register_forward_hook(self._keep)

    def end(self) -> None:
        """Leave nothing with the model, and keep none of its vectors."""
        self._vectors = []
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def take(self) -> list[Tensor]:
        """Return the vectors of the step, (n, d) for each call of the model."""
        taken, self._vectors = self._vectors, []
        return taken

    def _keep(self, module: Any, _inputs: Any, output: Any) -> None:
        if not (module.training and self._in_step):
            return
        vectors = output.get("sentence_embedding")
        if vectors is None:  # the mean of token vectors
            mask = output["attention_mask"].unsqueeze(-1)
            vectors = (output["token_embeddings"] * mask).sum(1) / mask.sum(1).clamp(min=1)
        self._vectors.append(vectors.detach())
