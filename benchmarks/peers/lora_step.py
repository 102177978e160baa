#!/usr/bin/env python3
"""Steps of training adapters of all linear layers in PyTorch with PEFT, as `bench lora_step` takes them. Prints the seconds of
each step but the first, and the most memory of the process over that before the model, in MiB.
Needs torch, transformers and peft. Usage: lora_step.py [--model FILE] [--rank 8] [--dora] [--gradient-checkpointing]
[--batch 1] [--seq 512] [--steps 4]"""

import argparse
import os
import re
import resource
import time
from pathlib import Path

import peft
import torch
import transformers


def resident():
    return int(re.search(r"VmRSS:\s*(\d+)", open("/proc/self/status").read())[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a config.json of Llama's; without it, that of SmolLM2-135M")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--dora", action="store_true")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="of each layer")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    o = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    idle = resident()
    config = transformers.LlamaConfig.from_json_file(o.model) if o.model else transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True, use_cache=False)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), peft.LoraConfig(
        r=o.rank, lora_alpha=2 * o.rank, target_modules="all-linear", use_dora=o.dora, task_type="CAUSAL_LM")).train()
    if o.gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0)
    i = torch.arange(o.batch * o.seq)
    tokens = ((i * i * 31 + i * 7) % config.vocab_size).reshape(o.batch, o.seq)
    for step in range(o.steps + 1):
        begin = time.perf_counter()
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step > 0:
            print(f"{time.perf_counter() - begin:.3f}", end=" ", flush=True)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - idle:.0f}")


if __name__ == "__main__":
    main()
