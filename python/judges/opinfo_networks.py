"""PyTorch's ops of networks by Rewind's: they are added to opinfo_entries' table. PyTorch puts channels second."""
import math

from judging import channels_first as second, channels_last as last
from opinfo_entries import ENTRIES, both, entry, need, no_dtype, skip

import rewind as rw


def batched(x, rank):
    """Images with a batch axis, and whether it is new."""
    return (x, False) if len(x.shape) == rank else (rw.unsqueeze(x, 0), True)


F = "nn.functional."
ENTRIES[F + "linear"] = lambda x, w, b=None: rw.linear(x, w, b)
ENTRIES[F + "elu"] = lambda x, alpha=1.0, inplace=False: rw.elu(x, alpha)
ENTRIES[F + "celu"] = lambda x, alpha=1.0, inplace=False: rw.elu(x / alpha) * alpha
ENTRIES[F + "leaky_relu"] = lambda x, negative_slope=0.01, inplace=False: rw.leaky_relu(x, negative_slope)
ENTRIES[F + "hardtanh"] = lambda x, min_val=-1.0, max_val=1.0, inplace=False: rw.clamp(x, min_val, max_val)
ENTRIES[F + "gelu"] = lambda x, approximate="none": rw.gelu(x) if approximate == "none" else rw.gelu_tanh(x)
ENTRIES[F + "glu"] = lambda x, dim=-1: rw.glu(x, dim)
ENTRIES[F + "softplus"] = lambda x, beta=1, threshold=20: skip("another beta") if beta != 1 else rw.softplus(x)
ENTRIES[F + "prelu"] = lambda x, weight: prelu(x, rw.reshape(weight, [-1]))
ENTRIES[F + "threshold"] = lambda x, threshold, value, inplace=False: rw.where(x > threshold, x, rw.zeros_like(x) + value)
ENTRIES[F + "softmin"] = lambda x, dim, **kw: rw.softmax(-x, dim)
ENTRIES[F + "one_hot"] = lambda x, num_classes=-1: rw.one_hot(x, num_classes if num_classes > 0 else int(rw.max(x).item()) + 1, rw.i32)
ENTRIES[F + "pixel_shuffle"] = lambda x, upscale_factor: shuffled(x, upscale_factor, rw.pixel_shuffle)
ENTRIES[F + "pixel_unshuffle"] = lambda x, downscale_factor: shuffled(x, downscale_factor, rw.pixel_unshuffle)
ENTRIES[F + "normalize"] = lambda x, p=2.0, dim=1, eps=1e-12: rw.normalize(x, p, dim, eps)
ENTRIES[F + "cosine_similarity"] = lambda a, b, dim=1, eps=1e-8: rw.cosine_similarity(a, b, dim, eps)


def prelu(x, weight):
    need(len(x.shape) > 0, "a tensor without axes")
    return rw.prelu(x, weight) if weight.shape[0] == 1 or len(x.shape) < 2 else second(rw.prelu(last(x), weight))


def shuffled(x, n, f):
    need(len(x.shape) == 4, "images without a batch")
    return second(f(last(x), n))


for name, f in (("softmax", rw.softmax), ("log_softmax", rw.log_softmax)):
    @entry(name)
    def soft(x, dim, f=f, **kw):
        no_dtype(kw)
        return f(x, dim)


def reduction_of(kw):
    need(kw.get("size_average") is None and kw.get("reduce") is None, "deprecated words for the reduction")
    return kw.get("reduction", "mean")


for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    @entry(F + name)
    def regression(x, y, f=getattr(rw, name), **kw):
        need(kw.get("weight") is None, "weights of elements")
        more = {k: v for k, v in kw.items() if k in ("beta", "delta")}
        return f(*both(x, y), reduction=reduction_of(kw), **more)


@entry(F + "kl_div")
def kl_div(x, y, log_target=False, **kw):
    r = reduction_of(kw)
    need(r != "batchmean" or len(x.shape) > 0, "batchmean of a number")
    if r == "batchmean":
        return rw.kl_div(x, y, log_target=log_target, reduction="sum") / float(x.shape[0])
    return rw.kl_div(*both(x, y), log_target=log_target, reduction=r)


ENTRIES[F + "binary_cross_entropy"] = lambda x, y, weight=None, **kw: rw.binary_cross_entropy(x, y, weight, reduction_of(kw))
ENTRIES[F + "binary_cross_entropy_with_logits"] = lambda x, y, weight=None, pos_weight=None, **kw: rw.binary_cross_entropy_with_logits(
    x, y, weight=weight, pos_weight=pos_weight, reduction=reduction_of(kw))
ENTRIES[F + "margin_ranking_loss"] = lambda a, b, y, margin=0.0, **kw: rw.margin_ranking_loss(a, b, rw.cast(y, rw.f32), margin, reduction_of(kw))
ENTRIES[F + "cosine_embedding_loss"] = lambda a, b, y, margin=0.0, **kw: rw.cosine_embedding_loss(
    a, b, rw.cast(y, rw.f32), margin, reduction_of(kw))
ENTRIES[F + "triplet_margin_loss"] = lambda a, p, n, margin=1.0, eps=1e-6, swap=False, **kw: rw.triplet_margin_loss(
    a, p, n, margin=margin, p=kw.pop("p", 2.0), eps=eps, swap=swap, reduction=reduction_of(kw))
ENTRIES[F + "multi_margin_loss"] = lambda x, y, p=1, margin=1.0, weight=None, **kw: rw.multi_margin_loss(
    x, y, p=p, margin=margin, weight=weight, reduction=reduction_of(kw))


@entry(F + "nll_loss")
def nll_loss(x, y, weight=None, ignore_index=-100, **kw):
    need(len(x.shape) > 1, "a sample without a batch")
    return rw.nll_loss(last(x) if len(x.shape) > 2 else x, y, weight, ignore_index, reduction_of(kw))


@entry(F + "cross_entropy")
def cross_entropy(x, y, weight=None, ignore_index=-100, label_smoothing=0.0, **kw):
    need(len(x.shape) == 2 and y.dtype == rw.i32, "logits of more than two axes or none for a batch; probabilities")
    return rw.cross_entropy(x, y, weight=weight, label_smoothing=label_smoothing, ignore_index=ignore_index, reduction=reduction_of(kw))


@entry(F + "embedding")
def embedding(table, i, padding_idx=None, max_norm=None, scale_grad_by_freq=False, **kw):
    need(max_norm is None and not scale_grad_by_freq, "max_norm and scale_grad_by_freq")
    return rw.embedding(table, i, None if padding_idx is None else padding_idx % table.shape[0])


@entry(F + "layer_norm")
def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    n = math.prod(shape)
    flat = [None if t is None else rw.reshape(t, [-1]) for t in (weight, bias)]
    return rw.reshape(rw.layer_norm(rw.reshape(x, [*x.shape[:len(x.shape) - len(shape)], n]), *flat, eps), x.shape)


ENTRIES[F + "rms_norm"] = lambda x, shape, weight=None, eps=None: rw.reshape(rw.rms_norm(
    rw.reshape(x, [*x.shape[:len(x.shape) - len(shape)], math.prod(shape)]),
    None if weight is None else rw.reshape(weight, [-1]), 1.1920928955078125e-7 if eps is None else eps), x.shape)


@entry(F + "group_norm")
def group_norm(x, n, weight=None, bias=None, eps=1e-5):
    need(math.prod(x.shape) > 0, "an empty batch")
    return second(rw.group_norm(last(x), n, weight, bias, eps))


@entry(F + "instance_norm")
def instance_norm(x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5, **kw):
    need(use_input_stats, "kept statistics")
    return second(rw.instance_norm(last(x), weight, bias, eps))


@entry(F + "batch_norm")
def batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, **kw):
    need(len(x.shape) > 1, "images without channels")
    c = x.shape[1]
    weight, bias = rw.ones([c]) if weight is None else weight, rw.zeros([c]) if bias is None else bias
    if training:
        return second(rw.batch_norm(last(x), weight, bias, eps)[0])
    return second(rw.batch_norm_with(last(x), mean, var, weight, bias, eps))


def spatial(v, n):
    v = [v] * n if isinstance(v, int) else list(v)
    return (v * n)[:n] if len(v) == 1 else v


for n in (1, 2, 3):
    @entry(f"{F}conv{n}d")
    def conv(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, n=n):
        x, new = batched(x, n + 2)
        stride, dilation = spatial(stride, n), spatial(dilation, n)
        end = None
        if isinstance(padding, str):
            reach = [d * (k - 1) for d, k in zip(dilation, w.shape[2:])] if padding == "same" else [0] * n
            padding, end = [r // 2 for r in reach], [r - r // 2 for r in reach]
        one = (lambda v: v[0]) if n == 1 else tuple
        y = getattr(rw, f"conv{n}d")(last(x), last(w), bias, stride=one(stride), padding=one(spatial(padding, n)),
                                     dilation=one(dilation), groups=groups, padding_end=end and one(end))
        return rw.squeeze(second(y), 0) if new else second(y)

for n in (1, 2):
    @entry(f"{F}conv_transpose{n}d")
    def conv_transpose(x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, n=n):
        x, new = batched(x, n + 2)
        one = (lambda v: spatial(v, 1)[0]) if n == 1 else (lambda v: tuple(spatial(v, n)))
        y = getattr(rw, f"conv_transpose{n}d")(last(x), last(w), bias, stride=one(stride), padding=one(padding),
                                               output_padding=one(output_padding), dilation=one(dilation), groups=groups)
        return rw.squeeze(second(y), 0) if new else second(y)

    @entry(f"{F}max_pool{n}d")
    def pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, n=n, f=None, **kw):
        need(not ceil_mode and not kw.get("return_indices") and kw.get("divisor_override") is None,
             "ceil_mode, indices, another divisor")
        x, new = batched(x, n + 2)
        one = (lambda v: spatial(v, 1)[0]) if n == 1 else (lambda v: tuple(spatial(v, n)))
        y = (f or getattr(rw, f"max_pool{n}d"))(
            last(x), kernel=one(kernel_size), stride=one(stride or kernel_size), padding=one(padding), dilation=one(dilation),
            count_include_pad=kw.get("count_include_pad", True))
        return rw.squeeze(second(y), 0) if new else second(y)
    ENTRIES[f"{F}avg_pool{n}d"] = (
        lambda x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, n=n, pool=pool: pool(
            x, kernel_size, stride, padding, 1, ceil_mode, n, getattr(rw, f"avg_pool{n}d"), count_include_pad=count_include_pad,
            divisor_override=divisor_override))
    for kind in ("avg", "max"):
        @entry(f"{F}adaptive_{kind}_pool{n}d")
        def adaptive(x, size, return_indices=False, n=n, kind=kind):
            need(not return_indices, "indices")
            x, new = batched(x, n + 2)
            size = [given or own for given, own in zip(spatial(size, n), x.shape[2:])] if not isinstance(size, int) else [size] * n
            y = getattr(rw, f"adaptive_{kind}_pool{n}d")(last(x), size[0] if n == 1 else tuple(size))
            return rw.squeeze(second(y), 0) if new else second(y)

for name, mode in {"nearest": "nearest", "nearest-exact": "nearest_exact", "linear": "linear", "bilinear": "linear",
                   "trilinear": "linear", "bicubic": "cubic", "area": "area"}.items():
    @entry(f"{F}interpolate/{name}")
    def interpolate(x, size=None, scale_factor=None, mode=None, align_corners=None, recompute_scale_factor=None, antialias=False, ours=mode):
        need(not antialias, "antialias")
        n = len(x.shape) - 2
        if size is not None:
            return second(rw.interpolate(last(x), size=spatial(size, n), mode=ours, align_corners=bool(align_corners)))
        factors = [float(scale_factor)] * n if isinstance(scale_factor, (int, float)) else [float(v) for v in scale_factor]
        if recompute_scale_factor:
            return second(rw.interpolate(last(x), size=[int(s * f) for s, f in zip(x.shape[2:], factors)], mode=ours,
                                         align_corners=bool(align_corners)))
        return second(rw.interpolate(last(x), scale_factor=factors, mode=ours, align_corners=bool(align_corners)))

for name, mode in {"constant": None, "reflect": "reflect", "replicate": "replicate", "circular": "circular"}.items():
    @entry(f"{F}pad/{name}")
    def pad(x, pads, mode=None, value=None, ours=mode):
        n, k = len(x.shape), len(pads) // 2
        before, after = [0] * n, [0] * n
        for i in range(k):
            before[n - 1 - i], after[n - 1 - i] = pads[2 * i], pads[2 * i + 1]
        need(min(before + after) >= 0, "negative pads")
        return rw.pad(x, before, after, value or 0.0) if ours is None else rw.pad(x, before, after, mode=ours)


@entry(F + "scaled_dot_product_attention")
def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **kw):
    need(dropout_p == 0, "dropout, whose random numbers are others")
    need(len(q.shape) == 4 and (attn_mask is None or attn_mask.dtype == rw.f32), "heads without a batch, masks of truth values")
    return rw.attention(q, k, v, mask=attn_mask, causal=is_causal, **({} if scale is None else {"scale": scale}))
