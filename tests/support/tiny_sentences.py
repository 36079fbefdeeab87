"""A random language model of two small layers, with a tokenizer that knows a few words."""

import json

import torch

WORDS = [
    "wolf",
    "fox",
    "snow",
    "forest",
    "car",
    "wheel",
    "engine",
    "road",
    "the",
    "a",
    "of",
    "grey",
    "red",
    "fast",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": len(SPECIAL) + len(WORDS),
    "max_position_embeddings": 34,
    "pad_token_id": 0,
}


def write_tiny_encoder(folder, pooling="mean", longest=12):
    """Write it as a folder of sentence-transformers."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SIZES))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    model.save_pretrained(folder)
    known = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=20)  # as in that of all-MiniLM-L6-v2: it must not matter
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "1_Pooling").mkdir()
    mode = {f"pooling_mode_{pooling}_token{'s' * (pooling == 'mean')}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(mode))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    return folder
