"""Embeds texts with a model of sentence-transformers. Only this file of the folder imports it."""

import hashlib
import re
from typing import Any

import numpy as np
import sentence_transformers
import torch
import transformers
from huggingface_hub import errors as hub_errors
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from batchplan.embedding.hub import located
from batchplan.embedding.options import EmbedOptions
from batchplan.embedding.table import description
from batchplan.errors import InputError
from batchplan.runtime import Runtime
from batchplan.text import keyed_url

# What transformers raises about a value in config.json; old versions check less.
_BAD_CONFIG: Any = getattr(hub_errors, "StrictDataclassError", KeyError)
_TASKS = ("query", "document")  # of models with a module for each


class SentenceEncoder:
    """Embeds texts with a model of sentence-transformers.

    Args:
        name: a folder, or a name on the Hugging Face Hub.
        options: the prompts, the batch size, and whether vectors get length 1.
        runtime: its device is used.

    Attributes:
        facts: what the vectors depend on in addition to the texts: the content of the model, the
            prompts, the versions of the libraries and the kind of device.

    Raises:
        InputError: the model cannot be loaded, or has no prompt of the given name.
        ResourceError: there is no such device.
    """

    def __init__(self, name: str, options: EmbedOptions, runtime: Runtime | None = None) -> None:
        device = (runtime or Runtime()).torch_device()
        self._model: Any = (model := load_model(name, str(device)))
        columns = range(len(options.names))
        self._asked = [self._prompting(name, column, options) for column in columns]
        self._settings = {
            "batch_size": options.batch_size,
            "normalize_embeddings": options.normalize,
            "show_progress_bar": False,
        }
        self.facts = {
            "model": name,
            "weights": _digest(model),
            "prompts": [asked.get("prompt") for asked in self._asked],
            "device": device.type,
            "sentence-transformers": sentence_transformers.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        }

    def encode(self, texts: list[str], column: int) -> NDArray[np.float32]:
        """Return the vectors of the texts (n, d) of a column, with its prompt."""
        vectors = self._model.encode(texts, **self._settings, **self._asked[column])
        return np.asarray(vectors, np.float32)

    def _prompting(self, name: str, column: int, options: EmbedOptions) -> dict[str, str]:
        """Return the arguments of the model for a column; none for the default prompt of the
        model."""
        chosen = options.prompt or options.prompt_text
        if not chosen and {*_TASKS} <= {*getattr(self._model[0], "sub_modules", ())}:
            ways = " --prompt ".join(("query", *["document"] * (len(options.names) - 1)))
            raise InputError(
                f"prompt: none for {name}, which embeds queries and documents in two ways; name "
                f"the way of each column: batchplan embed {name} TEXTS --columns "
                f"{options.columns} --prompt {ways} -o VECTORS, then batchplan plan VECTORS"
            )
        if not chosen or column >= len(chosen):
            return {}
        if options.prompt_text or not chosen[column]:
            return {"prompt": chosen[column]}
        known = self._model.prompts
        if chosen[column] not in known:
            raise InputError(
                f"prompt: got {chosen[column]!r:.80}, but {name} has {', '.join(known) or 'none'}; "
                "name one of them, or pass its text with --prompt-text"
            )
        task = {"task": chosen[column]} if chosen[column] in _TASKS else {}
        return {"prompt": known[chosen[column]], **task}


def load_model(name: str, device: str) -> Any:
    """Load a model by its folder or its name on the Hub; raises InputError."""
    found = located(name)
    transformers.utils.logging.disable_progress_bar()  # of loading weights
    try:
        return SentenceTransformer(found, device=device).eval()
    except (OSError, ValueError, KeyError, _BAD_CONFIG) as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, _BAD_CONFIG):  # its first line only names the field
            reason = " ".join(str(error.__cause__ or error).split())
        if not reason or keyed_url(reason):  # the Hub redirects to URLs with signatures
            reason = type(error).__name__
        raise InputError(
            f"{name}: cannot be loaded by sentence-transformers ({reason:.300}); give the folder "
            "of a model, or its name on the Hugging Face Hub"
        ) from error


def _digest(model: Any) -> str:
    """Return a digest of the weights, prompts, configurations and tokenizers."""
    digest = hashlib.blake2b(digest_size=16)
    parts: dict[int, Any] = {}  # each once, as modules share them
    for module in model.modules():
        held = (getattr(module, name, None) for name in ("config", "tokenizer"))
        parts |= {id(part): part for part in held if part is not None}
    described = [f"{model!r} {model.prompts!r} {model.default_prompt_name!r}"]
    described += map(description, parts.values())
    for text in described:
        digest.update(re.sub(r" at 0x[0-9a-f]+|name_or_path='[^']*'", "", text).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"b2:{digest.hexdigest()}"
