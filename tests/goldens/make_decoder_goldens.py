#!/usr/bin/env python3
"""Writes decoder.inc: what Hugging Face's decoders compute in f64, and how far f32, f16 and bf16 are from it.

Needs PyTorch and transformers 5 (Debian: python3-transformers). Weights and tokens come from hashed.py.
Usage: make_decoder_goldens.py > decoder.inc"""

import contextlib

import numpy as np
import torch
import transformers
from torch.nn import functional as F

from hashed import hashed

VOCAB, HIDDEN, INNER, BATCH, LENGTH, PROMPT = 50, 32, 48, 2, 24, 8

# A name, the class, and what differs from the sizes above.
MODELS = [
    ("llama 3", "Llama", dict(num_key_value_heads=2, rope_parameters=dict(
        rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64))),
    ("llama with biases", "Llama", dict(num_key_value_heads=4, attention_bias=True, mlp_bias=True,
                                        rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=3.0))),
    ("mistral", "Mistral", dict(num_key_value_heads=1, sliding_window=6)),
    ("qwen2", "Qwen2", dict(num_key_value_heads=2, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                            max_window_layers=1, rope_parameters=dict(
                                rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=0.5,
                                original_max_position_embeddings=32))),
    ("qwen3", "Qwen3", dict(num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
                            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    ("gemma", "Gemma", dict(num_key_value_heads=1, head_dim=16, hidden_act="gelu_pytorch_tanh",
                            tie_word_embeddings=True)),
    ("gemma 3", "Gemma3", dict(num_key_value_heads=2, head_dim=16, hidden_activation="gelu_pytorch_tanh",
                               tie_word_embeddings=True, num_hidden_layers=3, sliding_window=4,
                               layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                               query_pre_attn_scalar=24, rope_parameters=dict(
                                   full_attention=dict(rope_type="linear", rope_theta=1e5, factor=2.0),
                                   sliding_attention=dict(rope_type="default", rope_theta=50.0)))),
]


@contextlib.contextmanager
def all_in_f64():
    """Norms, softmax and positions name f32 in the classes; here these names mean f64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    yield
    torch.float32, torch.float, torch.Tensor.float = kept
    torch.set_default_dtype(torch.float32)


def integers(name, shape, n):
    """int64 values in [0, n)."""
    return torch.from_numpy(((hashed(name, shape) + 1) * np.float32(n / 2)).astype(np.int64))


def make(kind, options):
    config = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=2,
                  num_attention_heads=4, max_position_embeddings=LENGTH + 8, tie_word_embeddings=False, rms_norm_eps=1e-5,
                  pad_token_id=None, bos_token_id=None, eos_token_id=None)
    config |= options
    kind += "Text" * (kind == "Gemma3")
    config = getattr(transformers, kind + "Config")(**config)
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config).to(torch.get_default_dtype())
    for name, parameter in model.named_parameters():
        center = np.float32(parameter.ndim == 1 and name.endswith("weight") and not kind.startswith("Gemma"))
        value = center + hashed(name, tuple(parameter.shape)) * np.float32(0.25)
        parameter.data = torch.from_numpy(value).to(parameter.dtype)
    return model


def values(model, ids, targets):
    """Names and f64 arrays of the logits, the loss, and the gradients."""
    logits = model(ids).logits
    loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
    loss.backward()
    found = {"logits": logits, "loss": loss} | {n: p.grad for n, p in model.named_parameters()}
    return {name: t.detach().double().numpy().ravel() for name, t in found.items()}


def samples(name, flat):
    count = min(64 if name == "logits" else 8, flat.size)
    return flat[[i * flat.size // count for i in range(count)]]


def error(got, truth, names):
    """The root mean square of the samples' errors, each relative to the root mean square of its tensor."""
    parts = [(samples(n, got[n]) - samples(n, truth[n])) / np.sqrt(np.mean(truth[n] ** 2)) for n in names]
    return np.sqrt(np.mean(np.concatenate(parts) ** 2))


def numbers(array, digits=12):
    return "{" + ", ".join(f"{v:.{digits}g}" for v in np.asarray(array).ravel()) + "}"


def cxx(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "{" + ", ".join(map(cxx, value)) + "}"
    return repr(value)


def scaling(parameters):
    kept = {k: v for k, v in parameters.items() if k not in ("rope_theta", "rope_type")}
    fields = ["factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
              "original_max_position_embeddings"]
    return ", ".join([f'.type = {cxx(parameters["rope_type"])}'] + [f".{f} = {cxx(kept[f])}" for f in fields if f in kept])


def config_of(config):
    """The model's DecoderConfig."""
    rope = config.rope_parameters
    is_gemma3 = config.model_type == "gemma3_text"
    theta, local = (rope["full_attention"], rope["sliding_attention"]) if is_gemma3 else (rope, None)
    fields = {n: getattr(config, n) for n in ["model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                              "num_attention_heads", "num_key_value_heads"]}
    fields["head_dim"] = getattr(config, "head_dim", None) or HIDDEN // 4
    fields["max_position_embeddings"], fields["rms_norm_eps"] = config.max_position_embeddings, config.rms_norm_eps
    fields["rope_theta"] = theta["rope_theta"]
    if local:
        fields["rope_local_base_freq"] = local["rope_theta"]
    lines = [f".{k} = {cxx(v)}" for k, v in fields.items()]
    if theta["rope_type"] != "default":
        lines.append(f".rope_scaling = {{{scaling(theta)}}}")
    lines.append(f".tie_word_embeddings = {cxx(config.tie_word_embeddings)}")
    for name in ("attention_bias", "mlp_bias"):
        if getattr(config, name, False):
            lines.append(f".{name} = true")
    act = config.hidden_activation if is_gemma3 else config.hidden_act
    lines.append(f".hidden_act = {cxx(act)}")
    if getattr(config, "sliding_window", None):
        lines.append(f".sliding_window = {config.sliding_window}")
        if hasattr(config, "layer_types"):
            lines.append(f'.slides = {cxx([t == "sliding_attention" for t in config.layer_types])}')
    if is_gemma3:
        lines.append(f".query_pre_attn_scalar = {config.query_pre_attn_scalar}")
    return "{" + ",\n     ".join(lines) + "}"


def row(name, flat):
    return f'      {{"{name}", {flat.size}, {np.linalg.norm(flat):.12g},\n       {numbers(samples(name, flat))}}},'


torch.set_num_threads(2)
ids = integers("ids", (BATCH, LENGTH), VOCAB)
targets = integers("targets", (BATCH, LENGTH), VOCAB)
targets[:, ::5] = -100  # not to be predicted
print("// Made by make_decoder_goldens.py; do not edit. Rows: name, elements, norm, samples, in f64.")
print("const std::vector<DecoderGolden> decoders = {")
for title, kind, options in MODELS:
    with all_in_f64():
        model = make(kind, options)
        truth = values(model, ids, targets)
        tokens = ids[:, :PROMPT]
        with torch.no_grad():
            for _ in range(LENGTH - PROMPT):
                tokens = torch.cat([tokens, model(tokens).logits[:, -1].argmax(-1, keepdim=True)], 1)
    gradients = [n for n in truth if n not in ("logits", "loss")]
    errors = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rounded = values(make(kind, options).to(dtype), ids, targets)
        errors.append(numbers([error(rounded, truth, ["logits"]), error(rounded, truth, gradients)], 3))
    print(f'    {{"{title}",\n     {config_of(model.config)},')
    print(f'     {{{", ".join(errors)}}},')
    print("     {", *(row(n, truth[n]) for n in truth), "     },", sep="\n")
    print(f"     {numbers(tokens)}}},")
print("};")
