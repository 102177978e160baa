"""Prints the dtypes that torch.autocast("cuda", torch.float16) gives, for tests/ops/test_autocast.cpp. No GPU is
needed: the tensors are fake ones.   python3 make_autocast_goldens.py > autocast.inc"""
from functools import partial

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

torch.set_autocast_enabled("cuda", True)
torch.set_autocast_dtype("cuda", torch.float16)
mode = FakeTensorMode()


def fake(*shape, dtype):
    return FakeTensor(mode, torch.empty(*shape, dtype=dtype, device="meta"), torch.device("cuda:0"))


def index(*shape):
    return fake(*shape, dtype=torch.int64)


def rows(dtype):
    """Returns our name -> a call with inputs of `dtype`; `w` are weights, f32 as parameters are."""
    def f(*shape):
        return fake(*shape, dtype=dtype)

    def w(*shape):
        return fake(*shape, dtype=torch.float32)
    x, y = f(4, 4), f(4, 4)
    names = "neg abs exp log sqrt rsqrt square relu sigmoid tanh sin cos erf reciprocal sign floor ceil " \
            "log1p expm1 tan round trunc erfinv".split()
    all = {name: partial(getattr(torch, name), x) for name in names}
    all |= {name: partial(getattr(F, name), x) for name in
            "silu gelu softplus hardtanh softsign hardsigmoid hardswish mish selu leaky_relu elu".split()}
    all |= {
        "log_sigmoid": lambda: F.logsigmoid(x), "clamp": lambda: x.clamp(0, 1), "pow": lambda: x.pow(1.5),
        "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "div": lambda: x / y, "maximum": lambda: torch.maximum(x, y),
        "minimum": lambda: torch.minimum(x, y), "fmod": lambda: torch.fmod(x, y), "remainder": lambda: torch.remainder(x, y),
        "logaddexp": lambda: torch.logaddexp(x, y),
        "matmul": lambda: x @ w(4, 4), "linear": lambda: F.linear(x, w(4, 4), w(4)),
        "conv1d": lambda: F.conv1d(f(2, 4, 8), w(4, 4, 3)), "conv2d": lambda: F.conv2d(f(2, 4, 8, 8), w(4, 4, 3, 3)),
        "conv3d": lambda: F.conv3d(f(2, 4, 8, 8, 8), w(4, 4, 3, 3, 3)),
        "conv_transpose1d": lambda: F.conv_transpose1d(f(2, 4, 8), w(4, 4, 3)),
        "conv_transpose2d": lambda: F.conv_transpose2d(f(2, 4, 8, 8), w(4, 4, 3, 3)),
        "attention": lambda: F.scaled_dot_product_attention(f(2, 2, 4, 8), f(2, 2, 4, 8), f(2, 2, 4, 8)),
        "prelu": lambda: F.prelu(x, w(1)),
        "softmax": lambda: x.softmax(-1), "log_softmax": lambda: x.log_softmax(-1), "logsumexp": lambda: x.logsumexp(-1),
        "sum": lambda: x.sum(), "prod": lambda: x.prod(), "mean": lambda: x.mean(), "var": lambda: x.var(), "norm": lambda: torch.linalg.vector_norm(x),
        "cosine_similarity": lambda: F.cosine_similarity(x, y), "cumsum": lambda: x.cumsum(0), "cumprod": lambda: x.cumprod(0),
        "logcumsumexp": lambda: x.logcumsumexp(0),
        "layer_norm": lambda: F.layer_norm(x, (4,), w(4), w(4)), "rms_norm": lambda: F.rms_norm(x, (4,), w(4)),
        "group_norm": lambda: F.group_norm(x, 2, w(4), w(4)), "instance_norm": lambda: F.instance_norm(f(2, 4, 8)),
        "cross_entropy": lambda: F.cross_entropy(x, index(4)), "nll_loss": lambda: F.nll_loss(x, index(4)),
        "mse_loss": lambda: F.mse_loss(x, y), "l1_loss": lambda: F.l1_loss(x, y), "smooth_l1_loss": lambda: F.smooth_l1_loss(x, y),
        "huber_loss": lambda: F.huber_loss(x, y), "kl_div": lambda: F.kl_div(x, y),
        "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(x, y),
        "margin_ranking_loss": lambda: F.margin_ranking_loss(f(4), f(4), w(4)),
        "cosine_embedding_loss": lambda: F.cosine_embedding_loss(x, y, w(4)),
        "triplet_margin_loss": lambda: F.triplet_margin_loss(x, y, x), "multi_margin_loss": lambda: F.multi_margin_loss(x, index(4)),
        "concat": lambda: torch.cat([x, w(4, 4)]), "scatter_add": lambda: x.scatter_add(0, index(4, 4), w(4, 4)),
    }
    return all


def name_of(dtype):
    return {torch.float16: "DType::f16", torch.float32: "DType::f32"}[dtype]


with mode:
    from_low, from_f32 = rows(torch.float16), rows(torch.float32)
    print("// From make_autocast_goldens.py, PyTorch " + torch.__version__.split("+")[0] + ": an op, and its result's dtype")
    print("// for inputs in f16 and in f32 (weights are f32).")
    for name, run in from_low.items():
        print('{"%s", %s, %s},' % (name, name_of(run().dtype), name_of(from_f32[name]().dtype)))
