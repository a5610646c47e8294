"""Lines of the benchmark whose epochs have plans of different hardness, or none."""

from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses

from batchplan import Plan
from batchplan.training.sentence_transformers import PlannedEpochs
from tests.benchmarks.finetune.lines import FREE
from tests.benchmarks.finetune.runs import Parts

from .texts import QUICKLY, load_model, pairs, save_model


def test_each_epoch_has_its_number_of_mega_batches_or_random_batches(tmp_path):
    save_model(tmp_path)
    model, data = load_model(tmp_path), pairs()
    loss = losses.MultipleNegativesRankingLoss(model)
    plans = PlannedEpochs(data, loss, folder=tmp_path / "plans", **FREE)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), **{**QUICKLY, "num_train_epochs": 4}, batch_sampler=plans
    )
    callbacks = [Parts(plans, (0, 3, 0, None)), plans]
    SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=callbacks).train()
    made = [Plan.load(path).metadata for path in sorted((tmp_path / "plans").glob("*/plan-*.npz"))]
    assert [plan.planner for plan in made] == ["random", "partition", "random", "partition"]
    assert made[1].options["mega_batches"] == 3
    assert made[3].options["mega_batches"] == 2  # the default
