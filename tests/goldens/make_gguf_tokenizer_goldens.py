#!/usr/bin/env python3
"""Writes gguf_tokenizer.inc: what llama.cpp makes of texts by the unigram model of a GGUF file (tokenizer.ggml.model = "t5").

Needs the packages `cyllama` (0.2.18 or newer), which has llama.cpp, `gguf`, `sentencepiece`, which trains the model, and `tokenizers`.
Usage: make_gguf_tokenizer_goldens.py > gguf_tokenizer.inc"""

import base64
import io
import itertools
import os
import tempfile

import gguf
import numpy as np
import sentencepiece
from cyllama.llama.llama_cpp import LlamaModel, LlamaModelParams
from sentencepiece import sentencepiece_model_pb2

from make_bpe_goldens import LINES, TEXTS
from make_unigram_goldens import MORE
from token_goldens import literal, numbers, print_texts

WIDTH = 32  # of the layers that llama.cpp wants to see
# Some are beginnings of others: the longest counts.
RULES = {"ﬁ": "fi", "½": "1/2", "①": "1", "Å": "A", "e\u0301": "E", "\u200b": "", "☃": "snow", "\u00a0": " ", "\u3000": " ", "\t": " ", "T": "t", "×": "x",
         "q": "a", "qq": "the"}


def train():
    code = lambda text: " ".join(f"{ord(c):X}" for c in text)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("".join(f"{code(a)}\t{code(b)}\n" for a, b in RULES.items()))
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES), model_writer=model, vocab_size=230, hard_vocab_limit=False, normalization_rule_tsv=file.name,
            minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, user_defined_symbols=["<x>", "soft  ware"])
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def write(path, model, **flags):
    file = gguf.GGUFWriter(path, "llama")
    file.add_vocab_size(len(model.pieces))
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(WIDTH)
    file.add_head_count(2)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // 2)
    file.add_tokenizer_model("t5")
    file.add_token_list([piece.piece for piece in model.pieces])
    file.add_token_scores([piece.score for piece in model.pieces])
    file.add_token_types([piece.type for piece in model.pieces])
    file.add_precompiled_charsmap(model.normalizer_spec.precompiled_charsmap)
    for key, flag in flags.items():
        file.add_bool(f"tokenizer.ggml.{key}", flag)
    matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    shapes = {"token_embd": (len(model.pieces), WIDTH), "output": (len(model.pieces), WIDTH), "output_norm": WIDTH, "blk.0.attn_norm": WIDTH,
              "blk.0.ffn_norm": WIDTH, **{f"blk.0.{name}": (WIDTH, WIDTH) for name in matrices}}
    for name, shape in shapes.items():
        file.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def main():
    model = train()
    # Tables make tokens that no text had.
    texts = [text for text in TEXTS[::2] + MORE + ["<×> a<×>b", "soft\u00a0\tware", "qqq q"] if text and "\0" not in text]
    print("// Written by make_gguf_tokenizer_goldens.py; do not edit.")
    print(f'constexpr std::string_view charsmap = "{base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()}"sv;\n')
    print("// text; type; score")
    print("const GgufPiece pieces[] = {")
    for piece in model.pieces:
        print(f"  {{{literal(piece.piece)}, {piece.type}, {np.float32(piece.score):.9g}}},")
    print("};\n")
    print_texts("texts", texts)
    print("// add_space_prefix; remove_extra_whitespaces; the ids of each text, and those with special tokens as text")
    print("const GgufGolden goldens[] = {")
    with tempfile.TemporaryDirectory() as folder:
        for prefix, remove in itertools.product((False, True), repeat=2):
            path = os.path.join(folder, "model.gguf")
            write(path, model, add_space_prefix=prefix, remove_extra_whitespaces=remove)
            loaded = LlamaModel(path, LlamaModelParams())  # the vocabulary does not keep it
            vocabulary = loaded.get_vocab()
            print(f"  {{{str(prefix).lower()}, {str(remove).lower()}, {{")
            for text in texts:
                ids, plain = (list(vocabulary.tokenize(text, False, special)) for special in (True, False))
                print(f"    {{{numbers(ids)}, {'same' if plain == ids else numbers(plain)}}},")
            print("  }},")
    print("};")


if __name__ == "__main__":
    main()
