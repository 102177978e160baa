#!/usr/bin/env python3
"""Writes real_models.json, the goldens of tests/run/real_models.py: what transformers computes, in f32, with the models
that this script fetches.

Perplexities of the GPL 3 of Debian, in windows of 512 tokens of which the second half counts, as `lm perplexity`
measures them; hidden states of MiniLM, the last ones, of a few texts. Needs transformers 5.24, torch and gguf.
Usage: make_real_model_goldens.py FOLDER > real_models.json, where FOLDER is that of `real_models.py --fetch`"""

import json
import math
import re
import sys
from pathlib import Path

import tokenizers
import torch
import transformers

TEXT = Path("/usr/share/common-licenses/GPL-3")
WINDOW = 512
SENTENCES = ["The capital of France is Paris.", "A naïve café: 3.14 isn't π!",
             "Rewind trains networks in less memory, since it computes some values twice. " * 8]
STEP = 48  # every so many elements of the first, the middle and the last token are kept


def perplexity(file):
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if tokenizer.convert_ids_to_tokens([1]) == ["<|im_start|>"]:
        # SmolLM2's own tokenizer.json cuts digits off first, which is lost on transformers' way from GGUF.
        pre = tokenizers.pre_tokenizers
        tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True),
                                                                  pre.ByteLevel(add_prefix_space=False)])
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = tokenizer(TEXT.read_text())["input_ids"]
    begins = ids[0] == tokenizer.bos_token_id
    total = count = 0
    for at in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = torch.tensor(ids[at:at + WINDOW])
        targets = window[WINDOW // 2 + 1:].clone()
        if begins:
            window[0] = tokenizer.bos_token_id
        logits = model(window[None], logits_to_keep=WINDOW // 2).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        count += len(targets)
    return {"perplexity": round(math.exp(total / count), 5), "predicted": count, "tokens": len(ids)}


def states(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32)
    rows = []
    for text in SENTENCES:
        found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        some = found[[0, len(found) // 2, -1], ::STEP]
        rows.append({"text": text, "tokens": len(found), "states": [float(f"{x:.7g}") for x in some.flatten().tolist()]})
    return rows


def main():
    folder = Path(sys.argv[1])
    with torch.no_grad():
        made = {name: perplexity(folder / name) for name in ("smollm2.gguf", "gemma3.gguf")}
        made["minilm"] = states(folder / "minilm")
    text = json.dumps(made, indent=1, ensure_ascii=False)
    print(re.sub(r"\[[^\[\]{}]*\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text))


main()
