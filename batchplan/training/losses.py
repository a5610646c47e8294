"""What the losses of sentence-transformers decide about a plan."""

from __future__ import annotations

from typing import Any


def loss_settings(loss: Any) -> dict[str, Any]:
    """The options of a planner that a loss decides: ``temperature``, ``similarity``, ``scope``.

    Args:
        loss: a loss of sentence-transformers, or one around it such as MatryoshkaLoss. An option
            that it does not decide is left out.
    """
    from sentence_transformers.util import cos_sim, dot_score

    while not hasattr(loss, "scale") and not hasattr(loss, "temperature"):
        if not hasattr(loss, "loss"):
            return {}
        loss = loss.loss
    temperature = 1 / loss.scale if hasattr(loss, "scale") else loss.temperature
    settings: dict[str, Any] = {
        "temperature": float(temperature),
        "scope": "global" if getattr(loss, "gather_across_devices", False) else "device",
    }
    function = getattr(loss, "similarity_fct", None)
    for name, known in (("cosine", cos_sim), ("dot", dot_score)):
        if function is known:
            settings["similarity"] = name
    return settings
