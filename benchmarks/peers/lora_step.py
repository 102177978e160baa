#!/usr/bin/env python3
"""Steps of training adapters of all linear layers in PyTorch with PEFT, as `bench lora_step` takes them. Prints the seconds of
each step but the first, the CPU seconds of one of them, and the most memory of the process over that before the model, in
MiB. With --make FOLDER, it writes the model and an adapter that is not 0 there, and takes no step.
Needs torch, transformers and peft. Usage: lora_step.py [--model FILE|FOLDER] [--adapter FOLDER] [--rank 8] [--dora]
[--dtype f32] [--gradient-checkpointing] [--batch 1] [--seq 512] [--steps 4] [--data FILE] [--save-losses FILE]"""

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


def base(o):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[o.dtype]
    if o.model and o.model.is_dir():
        return transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=dtype)
    config = transformers.LlamaConfig.from_json_file(o.model) if o.model else transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True)
    config.use_cache = False
    return transformers.LlamaForCausalLM(config).to(dtype)


def adapted(o, model):
    if o.adapter:
        return peft.PeftModel.from_pretrained(model, o.adapter, is_trainable=True).train()
    return peft.get_peft_model(model, peft.LoraConfig(
        r=o.rank, lora_alpha=2 * o.rank, target_modules="all-linear", use_dora=o.dora, task_type="CAUSAL_LM")).train()


def batch(o, step, vocabulary):
    """Returns the tokens of a step and their labels: other bytes of --data in each, or else the same ones in all."""
    i = torch.arange(o.batch * (o.seq + 1))
    if o.data:
        text = torch.frombuffer(bytearray(o.data.read_bytes()), dtype=torch.uint8).long()
        ids = text[(step * len(i) + i) % len(text)]
    else:
        ids = (i * i * 31 + i * 7) % vocabulary
    texts = ids.reshape(o.batch, o.seq + 1)
    return texts[:, :-1].contiguous(), texts[:, 1:].contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a config.json of Llama's, or a folder with weights, too; without it, SmolLM2-135M's")
    parser.add_argument("--adapter", type=Path, help="in place of a new one")
    parser.add_argument("--make", type=Path, help="the folder to write a model and an adapter to")
    parser.add_argument("--data", type=Path, help="a text, whose bytes are the tokens")
    parser.add_argument("--save-losses", type=Path)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--dora", action="store_true")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="of each layer")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    o = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    idle = resident()
    model = adapted(o, base(o))
    if o.make:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0, 0.02)
        model.save_pretrained(o.make / "adapter")
        model.unload().save_pretrained(o.make / "model")
        return
    if o.gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0)
    losses, used = [], 0
    for step in range(o.steps + 1):
        begin = time.perf_counter()
        tokens, labels = batch(o, step, model.config.vocab_size)
        loss = model(tokens, labels=tokens, shift_labels=labels).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            used = time.process_time()
        else:
            print(f"{time.perf_counter() - begin:.3f}", end=" ", flush=True)
    print(f"{(time.process_time() - used) / o.steps:.3f}", end=" ")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - idle:.0f}")
    if o.save_losses:
        o.save_losses.write_text("".join(f"{loss}\n" for loss in losses))


if __name__ == "__main__":
    main()
