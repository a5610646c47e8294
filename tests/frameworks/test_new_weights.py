"""Encoders of the benchmark that are to start with new weights do not keep those they load."""

import pytest
import torch
from transformers import BertModel

from tests.benchmarks.finetune.encoders import renew

from .texts import save_model


@pytest.fixture
def loaded(tmp_path):
    """A model whose weights are all 7."""
    save_model(tmp_path)
    bert = BertModel.from_pretrained(tmp_path)
    for weights in bert.parameters():
        torch.nn.init.constant_(weights, 7)
    bert.save_pretrained(tmp_path)
    return BertModel.from_pretrained(tmp_path)


def kept(module):
    """How many of its weights are those that were loaded."""
    return sum(int((weights == 7).sum()) for weights in module.parameters())


def test_a_layer_is_new_and_the_rest_as_it_was(loaded):
    others = kept(loaded) - kept(loaded.encoder.layer)
    renew(loaded, loaded.encoder.layer[-1:])
    assert kept(loaded.encoder.layer) == 0
    assert kept(loaded) == others > 0
    spread = float(loaded.encoder.layer[0].attention.self.query.weight.detach().std())
    assert spread == pytest.approx(loaded.config.initializer_range, rel=0.3)


def test_all_of_a_model_is_new_and_the_same_each_time(loaded):
    renew(loaded, loaded)
    assert kept(loaded) == 0
    first = loaded.embeddings.word_embeddings.weight.clone()
    renew(loaded, loaded)
    assert torch.equal(loaded.embeddings.word_embeddings.weight, first)
