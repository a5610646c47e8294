"""Lines of the benchmark whose epochs have plans of different hardness."""

from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses

from batchplan import Plan
from batchplan.training.sentence_transformers import PlannedEpochs
from tests.benchmarks.finetune.lines import FREE
from tests.benchmarks.finetune.runs import Parts

from .texts import QUICKLY, load_model, pairs, save_model


def test_each_epoch_has_its_number_of_mega_batches(tmp_path):
    save_model(tmp_path)
    model, data = load_model(tmp_path), pairs()
    loss = losses.MultipleNegativesRankingLoss(model)
    plans = PlannedEpochs(tmp_path / "plans", data, loss, **FREE)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), **QUICKLY, batch_sampler=plans
    )
    callbacks = [Parts(plans, (2, 1)), plans]
    SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=callbacks).train()
    made = [Plan.load(path).metadata for path in sorted((tmp_path / "plans").glob("plan-*.npz"))]
    assert [plan.options["mega_batches"] for plan in made] == [2, 1]
