"""The recipe of docs/frameworks.md for open_clip, with a model of a few weights."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch

# The torchvision of PyPI registers operators that its CUDA library holds; no CLIP uses them.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        _OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import open_clip  # noqa: E402
from open_clip_train.data import DataInfo  # noqa: E402
from open_clip_train.train import train_one_epoch  # noqa: E402
from torch import distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from batchplan.training import EpochPlans, PlanBatchSampler  # noqa: E402

ROWS, EPOCHS = 47, 2


class Pairs(Dataset):
    """An image, and a text whose first token is the number of the row."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        image = torch.randn(3, 8, 8, generator=generator)
        return image, torch.tensor([row, ROWS, 0, 0])


def tiny_clip():
    torch.manual_seed(0)
    return open_clip.CLIP(
        8,
        open_clip.CLIPVisionCfg(layers=1, width=16, head_width=8, patch_size=4, image_size=8),
        open_clip.CLIPTextCfg(context_length=4, vocab_size=ROWS + 1, width=8, heads=1, layers=1),
        output_dict=True,
    )


def train(folder: Path, rank: int, world_size: int, workers: str):
    """The rows that each step of two epochs trains on."""
    if world_size > 1:
        distributed.init_process_group("gloo")
    dataset, model = Pairs(), tiny_clip()
    seen: list[list[int]] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1][:, 0].tolist()))
    parallel = DistributedDataParallel(model) if world_size > 1 else model
    args = Namespace(
        device="cpu", precision="fp32", accum_freq=1, distill=False, skip_scheduler=True,
        grad_clip_norm=None, horovod=False, log_every_n_steps=100, wandb=False, batch_size=4,
        rank=rank, local_rank=rank, world_size=world_size, distributed=world_size > 1,
    )  # fmt: skip

    def embed(rows):
        images, texts = map(torch.stack, zip(*(dataset[row] for row in rows.tolist()), strict=True))
        return model.encode_image(images), model.encode_text(texts)

    plans = EpochPlans(
        folder / "plans", embed=embed, num_rows=ROWS, batch_size=args.batch_size, scope="global",
        tail="drop",
    )  # fmt: skip
    sampler = PlanBatchSampler(plans, rank=args.rank, world_size=args.world_size)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=int(workers))
    loader.num_samples, loader.num_batches = len(dataset), len(loader)
    loss = open_clip.ClipLoss(
        local_loss=True, gather_with_grad=True, rank=rank, world_size=world_size
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        data = {"train": DataInfo(loader)}
        train_one_epoch(parallel, data, loss, epoch, optimizer, None, None, None, args)
    return seen
