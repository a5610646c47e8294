"""Embeds the texts of a data set as shards for planners."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.embedding.embedding import embed as embed
    from batchplan.embedding.encoder import SentenceEncoder as SentenceEncoder
    from batchplan.embedding.options import EmbedOptions as EmbedOptions
    from batchplan.embedding.tokens import token_embeddings as token_embeddings

__getattr__, __dir__ = lazily(__name__, __file__)
