"""The parts of the models in workloads.py, from Rewind and from PyTorch.

Values that models see are sequences [B, T, C], and images whose layout is the kit's own; heads are [B, H, T, D].
"""
import numpy as np


class Rewind:
    """Images are [N, H, W, C] and sequences of samples [N, L, C]."""

    def __init__(self, device):
        import rewind as rw
        rw.set_default_device(device)
        self.rw, self.nn = rw, rw.nn
        self.rms_norm = lambda size: rw.nn.RMSNorm(size, eps=1e-5)
        self.silu, self.gelu, self.relu, self.swiglu, self.rotary = rw.silu, rw.gelu, rw.relu, rw.swiglu, rw.rotary
        self.attention, self.no_grad, self.cross_entropy, self.mse = rw.attention, rw.no_grad, rw.cross_entropy, rw.mse_loss

    def parameter(self, *shape):
        return self.nn.Parameter(self.rw.zeros(shape))

    def image(self, array):
        return self.rw.tensor(np.ascontiguousarray(np.moveaxis(array, 1, -1)))

    def tensor(self, array):
        return self.rw.tensor(array)

    def sequence(self, samples):
        return samples

    def concat_channels(self, a, b):
        return self.rw.concat([a, b], -1)

    def twice(self, x):
        return self.rw.interpolate(x, scale_factor=[2.0, 2.0])

    def max_pool(self, x):
        return self.rw.max_pool2d(x, 3, 2, 1)

    def mean_of_image(self, x):
        return self.rw.mean(x, [1, 2])

    def load(self, model, state):
        model.load_state_dict({k: state[k] for k in model.state_dict()})

    def gradients(self, model):
        return {name: p.grad.numpy() for name, p in model.named_parameters()}

    def numpy(self, x):
        return x.numpy()

    def wait(self):
        self.rw.synchronize()


class PyTorch:
    """Images are [N, C, H, W] in channels_last, which its CPU kernels like best."""

    def __init__(self, device, threads):
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.set_num_threads(threads)
        self.torch, self.nn, self.F, self.device = torch, nn, F, device
        self.rms_norm = lambda size: nn.RMSNorm(size, eps=1e-5)
        self.silu, self.gelu, self.relu = F.silu, F.gelu, F.relu
        self.no_grad, self.cross_entropy, self.mse = torch.no_grad, F.cross_entropy, F.mse_loss
        self.turns = {}

    def parameter(self, *shape):
        return self.nn.Parameter(self.torch.zeros(shape))

    def image(self, array):
        x = self.tensor(array)
        return x.to(memory_format=self.torch.channels_last) if x.dim() == 4 else x

    def tensor(self, array):
        return self.torch.from_numpy(array).to(self.device)

    def sequence(self, samples):
        return samples.transpose(1, 2)

    def concat_channels(self, a, b):
        return self.torch.cat([a, b], 1)

    def twice(self, x):
        return self.F.interpolate(x, scale_factor=2)

    def max_pool(self, x):
        return self.F.max_pool2d(x, 3, 2, 1)

    def mean_of_image(self, x):
        return x.mean((2, 3))

    def swiglu(self, gate, up):
        return self.F.silu(gate) * up

    def attention(self, q, k, v, causal=False):
        return self.F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    def rotary(self, x, theta):
        length, size = x.shape[-2:]
        if (length, theta) not in self.turns:
            angles = self.torch.outer(self.torch.arange(length), theta ** (-self.torch.arange(0, size, 2) / size)).to(self.device)
            self.turns[length, theta] = self.torch.cat([angles.cos()] * 2, -1), self.torch.cat([angles.sin()] * 2, -1)
        cos, sin = self.turns[length, theta]
        a, b = x.chunk(2, -1)
        return x * cos + self.torch.cat([-b, a], -1) * sin

    def load(self, model, state):
        model.load_state_dict({k: self.torch.from_numpy(v) for k, v in state.items()})
        model.to(self.device, memory_format=self.torch.channels_last)

    def gradients(self, model):
        """Gradients by names, with channels last in kernels, as Rewind has them."""
        grads = {name: p.grad.cpu().numpy() for name, p in model.named_parameters()}
        return {name: np.moveaxis(grad, 1, -1) if grad.ndim > 2 else grad for name, grad in grads.items()}

    def numpy(self, x):
        x = x.detach()
        return (x.movedim(1, -1) if x.dim() == 4 else x).cpu().numpy()

    def wait(self):
        if self.device != "cpu":
            self.torch.cuda.synchronize()
