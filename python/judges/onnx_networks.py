"""ONNX's ops of networks by Rewind's: windows, convolutions, normalisation, losses. ONNX puts channels second."""
import math

import numpy as np
from judging import Unsupported, channels_first, channels_last
from onnx_ops import OPS, ints, op, part, tensor

import rewind as rw


def windows_of(a, shape):
    """Kernel, strides, dilations, and the pads before and after each axis, of a node over images of this shape."""
    n = len(shape)
    kernel = list(a["kernel_shape"])
    strides, dilations = a.get("strides", [1] * n), a.get("dilations", [1] * n)
    pads = list(a.get("pads", [0] * 2 * n))
    before, after = pads[:n], pads[n:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    for i in range(n):
        if a.get("auto_pad", "NOTSET").startswith("SAME"):
            all_ = max(0, (-(-shape[i] // strides[i]) - 1) * strides[i] + reach[i] - shape[i])
            half = all_ // 2
            before[i], after[i] = (half, all_ - half) if a["auto_pad"] == "SAME_UPPER" else (all_ - half, half)
        elif a.get("ceil_mode", 0):
            space = shape[i] + before[i] + after[i] - reach[i]
            after[i] += -(-space // strides[i]) * strides[i] - space
    return kernel, strides, dilations, reach, before, after


def unfolded(x, a, fill):
    """The windows of x [N, C, ...] as a last axis."""
    n = len(x.shape) - 2
    kernel, strides, dilations, reach, before, after = windows_of(a, x.shape[2:])
    x = rw.pad(x, [0, 0, *before], [0, 0, *after], fill)
    for i in range(n):
        x = rw.unfold(x, 2 + i, reach[i], strides[i])
        x = part(x, -1, 0, reach[i], dilations[i])
    return rw.reshape(x, [*x.shape[:2 + n], math.prod(kernel)])


@op("MaxPool")
def max_pool(a, x):
    dtype, x = x.dtype, rw.cast(x, rw.f32)
    windows = unfolded(x, a, -math.inf)
    y = rw.cast(rw.max(windows, [-1]), dtype)
    if a["outputs"] == 1:
        return y
    order = np.arange(math.prod(x.shape), dtype=np.float32).reshape(x.shape)
    places = unfolded(tensor(order), a, -1.0)
    chosen = rw.gather(places, -1, rw.unsqueeze(rw.argmax(windows, -1), -1))
    return y, rw.cast(rw.squeeze(chosen, -1), rw.i32)


@op("AveragePool")
def average_pool(a, x):
    padded = dict(a)
    ones = rw.ones(x.shape)
    if a.get("count_include_pad", 0):
        pads = a.get("pads", [0] * 2 * (len(x.shape) - 2))
        half = len(pads) // 2
        x, ones = (rw.pad(t, [0, 0, *pads[:half]], [0, 0, *pads[half:]], v) for t, v in ((x, 0.0), (ones, 1.0)))
        padded["pads"] = [0] * len(pads)
    return rw.sum(unfolded(x, padded, 0.0), [-1]) / rw.sum(unfolded(ones, padded, 0.0), [-1])


OPS["GlobalAveragePool"] = lambda a, x: rw.mean(x, list(range(2, len(x.shape))), True)
OPS["GlobalMaxPool"] = lambda a, x: rw.max(x, list(range(2, len(x.shape))), True)


@op("Conv")
def conv(a, x, w, b=None):
    n = len(x.shape) - 2
    a.setdefault("kernel_shape", list(w.shape[2:]))
    _, strides, dilations, _, before, after = windows_of(a, x.shape[2:])
    x = channels_last(rw.pad(x, [0, 0, *before], [0, 0, *after]))
    f = {1: rw.conv1d, 2: rw.conv2d, 3: rw.conv3d}[n]
    one = (lambda v: v[0]) if n == 1 else tuple
    return channels_first(f(x, channels_last(w), b, stride=one(strides), dilation=one(dilations), groups=a.get("group", 1)))


@op("ConvTranspose")
def conv_transpose(a, x, w, b=None):
    n = len(x.shape) - 2
    if n > 2:
        raise Unsupported("transposed convolutions of volumes")
    strides, dilations = a.get("strides", [1] * n), a.get("dilations", [1] * n)
    extra, pads = a.get("output_padding", [0] * n), list(a.get("pads", [0] * 2 * n))
    f = {1: rw.conv_transpose1d, 2: rw.conv_transpose2d}[n]
    one = (lambda v: v[0]) if n == 1 else tuple
    y = channels_first(f(channels_last(x), channels_last(w), stride=one(strides), dilation=one(dilations),
                         groups=a.get("group", 1)))
    y = rw.pad(y, [0] * (n + 2), [0, 0, *extra])
    for i in range(n):
        size, begin, end = y.shape[2 + i], pads[i], pads[n + i]
        if a.get("auto_pad", "NOTSET").startswith("SAME"):
            over = size - x.shape[2 + i] * strides[i]
            begin, end = (over // 2, over - over // 2) if a["auto_pad"] == "SAME_UPPER" else (over - over // 2, over // 2)
        elif "output_shape" in a:
            wanted = a["output_shape"][i]
            y = rw.pad(y, [0] * (n + 2), [0] * (2 + i) + [max(0, wanted - size)] + [0] * (n - 1 - i))
            begin, end = 0, max(0, size - wanted)
        y = part(y, 2 + i, begin, y.shape[2 + i] - end)
    return y if b is None else y + rw.reshape(b, [1, -1] + [1] * n)


@op("BatchNormalization")
def batch_norm(a, x, scale, bias, mean, var):
    eps, momentum = a.get("epsilon", 1e-5), a.get("momentum", 0.9)
    if not a.get("training_mode", 0):
        return channels_first(rw.batch_norm_with(channels_last(x), mean, var, scale, bias, eps))
    axes = [0, *range(2, len(x.shape))]
    m, v = rw.mean(x, axes), rw.var(x, axes)
    y = channels_first(rw.batch_norm_with(channels_last(x), m, v, scale, bias, eps))
    return y, mean * momentum + m * (1 - momentum), var * momentum + v * (1 - momentum)


OPS["InstanceNormalization"] = lambda a, x, scale, bias: channels_first(
    rw.instance_norm(channels_last(x), scale, bias, a.get("epsilon", 1e-5)))


@op("LayerNormalization")
def layer_norm(a, x, scale, bias=None):
    axis, eps = a.get("axis", -1) % len(x.shape), a.get("epsilon", 1e-5)
    lead, width = list(x.shape[:axis]), math.prod(x.shape[axis:])
    rows = rw.reshape(x, [*lead, width])
    y = rw.layer_norm(rows, rw.reshape(scale, [-1]), None if bias is None else rw.reshape(bias, [-1]), eps)
    kept = lead + [1] * (len(x.shape) - axis)
    inverse = rw.rsqrt(rw.var(rows, [-1]) + eps)
    return rw.reshape(y, x.shape), rw.reshape(rw.mean(rows, [-1]), kept), rw.reshape(inverse, kept)


@op("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def class_loss(a, x, target, weight=None):
    axes = [0, *range(2, len(x.shape)), 1]
    logs = x if a["op"][0] == "N" else rw.log_softmax(x, 1)
    loss = rw.nll_loss(rw.permute(logs, axes), target, weight, a.get("ignore_index", -(2**31)),
                       a.get("reduction", "mean"))
    return loss, logs


@op("Resize", "Upsample")
def resize(a, x, roi=None, scales=None, sizes=None):
    if a["op"] == "Upsample":
        scales, a = roi, {**a, "coordinate_transformation_mode": "asymmetric"}
    mode, where = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
    factors = None if scales is None or not scales.shape[0] else [float(v) for v in scales.numpy()]
    sizes = ints(sizes) if sizes is not None and factors is None else [int(n * f) for n, f in zip(x.shape, factors)]
    whole = all(s % n == 0 for s, n in zip(sizes, x.shape))
    near = mode == "nearest" and ((where == "asymmetric" and a.get("nearest_mode") == "floor") or (whole and where == "half_pixel"))
    exact = factors is None or all(n * f == s for n, f, s in zip(x.shape, factors, sizes))
    good = near or (mode in ("linear", "cubic") and exact and where in ("half_pixel", "align_corners")
                    and a.get("cubic_coeff_a", -0.75) == -0.75 and not a.get("exclude_outside", 0))
    if not good or sizes[:2] != list(x.shape[:2]):
        raise Unsupported("these places of samples")
    return channels_first(rw.interpolate(channels_last(x), size=sizes[2:], mode=mode, align_corners=where == "align_corners"))
