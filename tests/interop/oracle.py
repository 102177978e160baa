#!/usr/bin/env python3
"""What other programs make of decoders and say about ours, for check_decoder_files.py.

Needs transformers, safetensors and gguf (Debian forky: python3-transformers, python3-gguf), and for its last commands
llama-quantize and llama-server (llama.cpp-tools), and llama.cpp's converter below /usr/share/llama.cpp.
Usage: oracle.py make FOLDER | convert FOLDER | compare FOLDER"""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

VOCAB, EOS, LAYERS, NEW = 300, 256, 2, 64
PROMPT = [int(i) for i in np.random.default_rng(2).integers(0, 256, 40)]
QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K"]
CONVERTER = "/usr/share/llama.cpp/llama.cpp-tools"
failures = []


def expect(ok, what):
    if not ok:
        failures.append(what)
        print("FAILED:", what, flush=True)


# ---- random models ----------------------------------------------------------------------------------------------


def models():
    """(name, class, configuration) of a small model of each family, with K-quants' rows of 256."""
    import transformers as t
    size = dict(vocab_size=VOCAB, hidden_size=256, intermediate_size=512, num_hidden_layers=LAYERS, num_attention_heads=8,
                num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=EOS, pad_token_id=None)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64, rope_theta=10000.0)
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, rope_theta=10000.0)
    return [("llama", t.LlamaForCausalLM, t.LlamaConfig(**size)),
            ("llama3", t.LlamaForCausalLM, t.LlamaConfig(**size, rope_parameters=llama3, tie_word_embeddings=True,
                                                         head_dim=64)),
            ("biases", t.LlamaForCausalLM, t.LlamaConfig(**size, attention_bias=True)),
            ("mistral", t.MistralForCausalLM, t.MistralConfig(**size, sliding_window=None)),
            ("window", t.MistralForCausalLM, t.MistralConfig(**size, sliding_window=16)),
            ("qwen2", t.Qwen2ForCausalLM, t.Qwen2Config(**size)),
            ("qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**size, head_dim=64)),
            ("yarn", t.Qwen3ForCausalLM, t.Qwen3Config(**size, head_dim=32, rope_parameters=yarn)),
            ("gemma", t.GemmaForCausalLM, t.GemmaConfig(**size, head_dim=32)),
            ("gemma3", t.Gemma3ForCausalLM, t.Gemma3TextConfig(**size | dict(num_hidden_layers=7), head_dim=64,
                                                               sliding_window=16, query_pre_attn_scalar=64)),
            ("pattern", t.Gemma3ForCausalLM, t.Gemma3TextConfig(**size, head_dim=64, sliding_window=16, query_pre_attn_scalar=64,
                                                                layer_types=["full_attention", "sliding_attention"])),
            ("factor", t.Qwen3ForCausalLM, t.Qwen3Config(**size, head_dim=32, rope_parameters=yarn | dict(attention_factor=1.3)))]


def randomise(model):
    import torch
    generator = torch.Generator().manual_seed(1)
    tied, gemma = model.config.tie_word_embeddings, "Gemma" in type(model).__name__
    for name, parameter in model.named_parameters():
        scale = 0.2 if parameter.dim() == 1 else 1.5 * parameter.shape[-1]**-0.5
        if "embed_tokens" in name:  # a tied model with large embeddings would repeat its input
            scale = (0.01 if gemma else 0.06) if tied else 1
        noise = torch.randn(parameter.shape, generator=generator) * scale
        is_norm = "norm" in name and not gemma
        parameter.data = noise + 1 if is_norm else noise


def logits_of(model):
    import torch
    with torch.no_grad():
        return model.eval()(torch.tensor([PROMPT])).logits.numpy()


def write_tokenizer(path):
    """A vocabulary of the 256 bytes, an end and unused tokens, without a model."""
    import gguf
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters for bytes
    others = [b for b in range(256) if b not in shown]
    letter = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(others)}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([letter[b] for b in range(256)] + ["<|end|>"] + [f"[unused{i}]" for i in range(VOCAB - 257)])
    writer.add_token_types([1] * 256 + [3] + [5] * (VOCAB - 257))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(EOS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make(folder):
    for name, model_class, config in models():
        model = model_class(config)
        randomise(model)
        model.save_pretrained(folder / name / "theirs", **({"max_shard_size": "1MB"} if name == "qwen3" else {}))
        np.save(folder / name / "theirs.npy", logits_of(model))
        np.save(folder / name / "exact.npy", logits_of(model.double()))
    write_tokenizer(folder / "tokenizer.gguf")
    print(*(name for name, _, _ in models()))
    print(*PROMPT)


# ---- llama.cpp's files ------------------------------------------------------------------------------------------


def convert(folder):
    """The models by llama.cpp's converter, and ours quantised."""
    import torch
    sys.path.insert(0, CONVERTER)
    import gguf
    from conversion import get_model_class
    for name, model_class, _ in models():
        kind = get_model_class(model_class.__name__)
        kind.set_vocab = lambda self: None
        if "Gemma3" in model_class.__name__:  # it counts the vocabulary by the tokenizer's file
            (folder / name / "theirs" / "tokenizer.json").write_text(
                json.dumps({"model": {"vocab": {str(i): i for i in range(VOCAB)}}, "added_tokens": []}))
        with torch.inference_mode():
            kind(folder / name / "theirs", gguf.LlamaFileType.ALL_F32, folder / name / "theirs.gguf").write()
    for kind in QUANTISED:
        for name in ("llama3", "qwen3", "gemma3"):
            subprocess.run(["llama-quantize", folder / name / "ours.gguf", folder / name / f"{kind}.gguf", kind], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ---- comparisons ------------------------------------------------------------------------------------------------


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def check_logits(folder, name):
    exact, theirs = np.load(folder / name / "exact.npy"), np.load(folder / name / "theirs.npy")
    allowed = 1.5 * rms(theirs - exact) + 1e-7 * rms(exact)
    for ours in ("ours", "ours.gguf", "theirs.gguf"):
        error = rms(np.load(folder / name / f"{ours}.npy") - exact)
        # Values to which 1 was added and subtracted have lost digits.
        factor = 3 if "gemma" in name and ours.endswith("gguf") else 1
        print(f"{name:8} {ours:12} error of the logits {error:.2e}, transformers' f32 {rms(theirs - exact):.2e}")
        if not (name in ("window", "pattern") and ours == "theirs.gguf"):  # that file does not know of these
            expect(error <= factor * allowed, f"{name}: logits of {ours}")


def check_folder(folder, name, model_class):
    model, info = model_class.from_pretrained(folder / name / "ours", output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        expect(not info[key], f"{name}: {key} {info[key]}")
    expect(np.array_equal(logits_of(model), np.load(folder / name / "theirs.npy")),
           f"{name}: logits of our folder in transformers")
    theirs, ours = (json.loads((folder / name / which / "config.json").read_text()) for which in ("theirs", "ours"))
    expect(model.config.eos_token_id == EOS and ours["eos_token_id"] == theirs["eos_token_id"], f"{name}: eos_token_id")
    a = model_class.config_class.from_pretrained(folder / name / "theirs").to_dict()
    b = model_class.config_class.from_pretrained(folder / name / "ours").to_dict()
    for key in a:
        if key not in ("transformers_version", "_name_or_path"):
            expect(a[key] == b.get(key), f"{name}: {key} is {a[key]}, not {b.get(key)}")


def check_gguf(folder, name):
    """Tensors and metadata of ours are those of llama.cpp's converter."""
    import gguf
    ours, theirs = (gguf.GGUFReader(folder / name / f"{which}.gguf") for which in ("ours", "theirs"))
    tensors = {t.name: t for t in ours.tensors}
    expect(tensors.keys() == {t.name for t in theirs.tensors}, f"{name}: names of tensors")
    for t in theirs.tensors:
        mine = tensors.get(t.name)
        same = mine is not None and list(mine.shape) == list(t.shape) and (
            np.allclose(mine.data, t.data, rtol=1e-6, atol=0) if t.name == "rope_freqs.weight" else np.array_equal(mine.data, t.data))
        expect(same, f"{name}: tensor {t.name}")
    for key, field in theirs.fields.items():
        if key.startswith(("GGUF.", "general.", "tokenizer.")):
            continue
        mine = ours.fields.get(key)
        expect(mine is not None and mine.contents() == field.contents(),
               f"{name}: {key} is {field.contents()}, not {mine and mine.contents()}")


def check_quantised(folder, name):
    import gguf
    from safetensors.numpy import load_file
    for kind in QUANTISED:
        ours = load_file(folder / name / f"{kind}.safetensors")
        kinds = set()
        for t in gguf.GGUFReader(folder / name / f"{kind}.gguf").tensors:
            kinds.add(t.tensor_type.name)
            theirs = gguf.quants.dequantize(t.data, t.tensor_type)
            expect(np.array_equal(ours[t.name], theirs.reshape(ours[t.name].shape)), f"{name}: {kind}: {t.name}")
        print(f"{name:8} {kind:7} is read bit for bit:", *sorted(kinds))


def check_rounded(folder, name):
    """Our F16, BF16 and Q8_0 have the bits of llama.cpp's own."""
    import gguf
    plain = {t.name: t for t in gguf.GGUFReader(folder / name / "ours.gguf").tensors}
    for kind in ("F16", "BF16", "Q8_0"):
        for t in gguf.GGUFReader(folder / name / f"ours-{kind}.gguf").tensors:
            expect(t.tensor_type.name == (kind if len(t.shape) > 1 else "F32"), f"{name}: type of {t.name}")
            theirs = gguf.quants.quantize(plain[t.name].data, t.tensor_type)
            expect(t.data.tobytes() == theirs.tobytes(), f"{name}: {kind} of {t.name}")


def llama_tokens(file, port=8093):
    """The likeliest 64 tokens after the prompt by llama-server."""
    server = subprocess.Popen(["llama-server", "-m", file, "--port", str(port), "-ctk", "f32", "-ctv", "f32", "-fa", "off",
                               "-c", "256", "-np", "1", "-t", "1", "--no-warmup"],
                              stdout=subprocess.DEVNULL, stderr=open(f"{file}.log", "w"))
    body = {"prompt": PROMPT, "n_predict": NEW, "top_k": 1, "return_tokens": True, "ignore_eos": False, "cache_prompt": False}
    try:
        for _ in range(300):
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                return json.load(urllib.request.urlopen(request))["tokens"]
            except OSError:
                if server.poll() is not None:
                    return f"llama-server ended with {server.returncode}"
                time.sleep(0.2)
        return "llama-server does not answer"
    finally:
        server.kill()
        server.wait()


def check_llama(folder, name):
    for which in ("ours", "ours-F16", "ours-Q8_0"):
        mine = [int(t) for t in (folder / name / f"{which}.tokens").read_text().split()]
        mine = mine[:mine.index(EOS) + 1] if EOS in mine else mine
        theirs = llama_tokens(folder / name / f"{which}.gguf")
        theirs = theirs + [EOS] if isinstance(theirs, list) and len(theirs) + 1 == len(mine) and mine[-1] == EOS else theirs
        print(f"{name:8} {which:9} the same {len(mine)} greedy tokens in llama.cpp: {mine == theirs}", flush=True)
        # Products of 16 and 8 bits round differently there; windows are not used there.
        if which == "ours" and name != "window":
            expect(mine == theirs, f"{name}: greedy tokens of {which}: {mine}, llama.cpp {theirs}")


def compare(folder):
    for name, model_class, _ in models():
        check_logits(folder, name)
        check_folder(folder, name, model_class)
        check_gguf(folder, name)
        check_rounded(folder, name)
        if (folder / name / "Q6_K.gguf").exists():
            check_quantised(folder, name)
        check_llama(folder, name)
    print(f"{len(failures)} failed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    {"make": make, "convert": convert, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
