"""Reads from losses of sentence-transformers the options that they decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def loss_settings(loss: Any, similarities: Mapping[Any, str]) -> dict[str, Any]:
    """Return the options of a planner that a loss decides: ``temperature``, ``similarity``,
    ``scope``.

    Args:
        loss: a loss of sentence-transformers, or one around it such as MatryoshkaLoss. An option
            that it does not decide is left out.
        similarities: the names of the similarity functions that plans know.
    """
    while not hasattr(loss, "scale") and not hasattr(loss, "temperature"):
        if not hasattr(loss, "loss"):
            return {}
        loss = loss.loss
    temperature = 1 / loss.scale if hasattr(loss, "scale") else loss.temperature
    settings: dict[str, Any] = {
        "temperature": float(temperature),
        "scope": "global" if getattr(loss, "gather_across_devices", False) else "device",
    }
    if name := similarities.get(getattr(loss, "similarity_fct", None)):
        settings["similarity"] = name
    return settings
