"""The card of a repository that has a plan: README.md, as the Hugging Face Hub shows it."""

from __future__ import annotations

import json
import re

from batchplan.errors import InputError
from batchplan.plans.metadata import PlanMetadata
from batchplan.text import public

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_FILE = re.compile(r"[\w.-]+(/[\w.-]+)*")

_CARD = """\
---
tags:
- batchplan
- contrastive-learning
source_datasets:
- {dataset}
---

# Planned batches of {dataset}

`{file}` says which rows of [{dataset}](https://huggingface.co/datasets/{dataset}) share a batch in
contrastive training: {batches:,} batches of {size:,} over {rows:,} rows.{planned}

```python
from batchplan.training import PlanBatchSampler
from huggingface_hub import snapshot_download

sampler = PlanBatchSampler(snapshot_download("{repository}", repo_type="dataset") + "/{file}")
```

It is the `batch_sampler` of a DataLoader, or of the training arguments of sentence-transformers
(with `rank="all"` and `world_size`). Row numbers are those of the data set as it was planned: do
not shuffle or filter it.

## How it was made

```json
{made}
```
"""


def card_of(
    metadata: PlanMetadata,
    num_batches: int,
    *,
    repository: str,
    file: str,
    dataset: str,
    model: str | None,
) -> str:
    """Return the text of a card; arguments and errors as `Plan.save_card`."""
    for name, value in {"repository": repository, "dataset": dataset, "model": model}.items():
        if value is not None and not _REPOSITORY.fullmatch(value):
            raise InputError(
                f"{name}: got {value!r}, expected a repository of the Hub, such as user/pairs"
            )
    if not _FILE.fullmatch(file):
        raise InputError(f"file: got {file!r}, expected a path in the repository: plans/0.npz")
    known = metadata.to_dict()
    made = {name: known[name] for name in ("planner", "options", "seed", "fingerprint", "versions")}
    made["figures"] = metadata.metrics
    planned = "" if model is None else f" It was planned with the vectors of `{model}`."
    return _CARD.format(
        dataset=dataset, repository=repository, file=file, planned=planned, batches=num_batches,
        size=metadata.batch_size, rows=metadata.num_rows, made=json.dumps(public(made), indent=1),
    )  # fmt: skip
