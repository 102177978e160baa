"""The five workloads of Inference Arena (github.com/kvark/inferena), written once over what a kit of kits.py has.

A workload is made by its name in WORKLOADS: a function of the kit gives the model, another one, given the kit and the model,
the function that runs forward and returns the output and the loss.
"""
import numpy as np


def sines(*shape, step=0.001, wave=np.sin):
    return wave(np.arange(np.prod(shape)) * step).astype(np.float32).reshape(shape)


def heads(x, count):
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


# ---- SmolLM2-135M, and the action expert of SmolVLA: layers of Llama's kind ---------------------------------------------


def decoder_layer(k, size, inner, query_heads, key_heads, head_size, theta=0):
    linear = lambda a, b: k.nn.Linear(a, b, bias=False)  # noqa: E731

    class Attention(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj = linear(size, query_heads * head_size), linear(size, key_heads * head_size)
            self.v_proj, self.o_proj = linear(size, key_heads * head_size), linear(query_heads * head_size, size)

        def forward(self, x, keys):
            q, key = heads(self.q_proj(x), query_heads), heads(self.k_proj(keys), key_heads)
            if theta:
                q, key = k.rotary(q, theta=theta), k.rotary(key, theta=theta)
            return self.o_proj(merged(k.attention(q, key, heads(self.v_proj(keys), key_heads), causal=theta > 0)))

    class Mlp(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj, self.up_proj, self.down_proj = linear(size, inner), linear(size, inner), linear(inner, size)

        def forward(self, x):
            return self.down_proj(k.swiglu(self.gate_proj(x), self.up_proj(x)))

    class Layer(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2, self.mlp = k.rms_norm(size), Attention(), k.rms_norm(size), Mlp()

        def forward(self, x, keys=None):
            h = self.norm1(x)
            x = x + self.attention(h, h if keys is None else keys)
            return x + self.mlp(self.norm2(x))

    return Layer()


def language_model(k):
    class Model(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = k.nn.Embedding(49152, 576)
            self.layers = k.nn.ModuleList([decoder_layer(k, 576, 1536, 9, 3, 64, theta=100000.0) for _ in range(30)])
            self.norm = k.rms_norm(576)

        def forward(self, ids):
            x = self.embedding(ids)
            for layer in self.layers:
                x = layer(x)
            return self.norm(x) @ self.embedding.weight.transpose(0, 1)

    return Model()


def run_language_model(k, model):
    ids, labels = (k.tensor(np.arange(128) + shift) for shift in (0, 1))

    def step():
        logits = model(ids.reshape(1, -1)).reshape(128, -1)
        return logits, k.cross_entropy(logits, labels)
    return step


def action_expert(k):
    class Model(k.nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda a, b: k.nn.Linear(a, b, bias=False)  # noqa: E731
            self.action_proj, self.time_proj, self.kv_proj = linear(32, 720), linear(1440, 720), linear(320, 720)
            self.layers = k.nn.ModuleList([decoder_layer(k, 720, 2048, 15, 5, 64) for _ in range(16)])
            self.norm, self.head = k.rms_norm(720), linear(720, 32)

        def forward(self, actions, time, seen):
            x, keys = self.action_proj(actions) + self.time_proj(time), self.kv_proj(seen)
            for i, layer in enumerate(self.layers):
                x = layer(x, keys if i % 2 else None)
            return self.head(self.norm(x))

    return Model()


def run_action_expert(k, model):
    given = [k.tensor(a) for a in (sines(1, 50, 32, step=0.01), sines(1, 1, 1440, step=0.005), sines(1, 16, 320, step=0.01, wave=np.cos))]
    target = k.tensor(np.zeros((1, 50, 32), np.float32))

    def step():
        out = model(*given)
        return out, k.mse(out, target)
    return step


# ---- networks of convolutions -------------------------------------------------------------------------------------------


def conv(k, a, b, kernel, stride=1):
    return k.nn.Conv2d(a, b, kernel, stride=stride, padding=kernel // 2, bias=False)


def resnet50(k):
    class Bottleneck(k.nn.Module):
        def __init__(self, a, width, stride):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = conv(k, a, width, 1), conv(k, width, width, 3, stride), conv(k, width, 4 * width, 1)
            self.bn1, self.bn2, self.bn3 = k.nn.BatchNorm2d(width), k.nn.BatchNorm2d(width), k.nn.BatchNorm2d(4 * width)
            self.has_shortcut = a != 4 * width
            if self.has_shortcut:
                self.shortcut, self.shortcut_bn = conv(k, a, 4 * width, 1, stride), k.nn.BatchNorm2d(4 * width)

        def forward(self, x):
            y = k.relu(self.bn1(self.conv1(x)))
            y = self.bn3(self.conv3(k.relu(self.bn2(self.conv2(y)))))
            return k.relu(y + (self.shortcut_bn(self.shortcut(x)) if self.has_shortcut else x))

    class Model(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = conv(k, 3, 64, 7, 2), k.nn.BatchNorm2d(64)
            blocks, channels = [], 64
            for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for i in range(count):
                    blocks.append(Bottleneck(channels, width, 1 if i else stride))
                    channels = 4 * width
            self.blocks, self.fc = k.nn.ModuleList(blocks), k.nn.Linear(2048, 1000)

        def forward(self, x):
            x = k.max_pool(k.relu(self.bn1(self.conv1(x))))
            for block in self.blocks:
                x = block(x)
            return self.fc(k.mean_of_image(x))

    return Model().eval()  # by the protocol, norms use their running values


def run_resnet50(k, model):
    images, labels = k.image(sines(4, 3, 224, 224)), k.tensor(np.arange(4))

    def step():
        logits = model(images)
        return logits, k.cross_entropy(logits, labels)
    return step


def unet(k):
    class Block(k.nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.norm1, self.conv1 = k.nn.GroupNorm(16, a), conv(k, a, b, 3)
            self.norm2, self.conv2 = k.nn.GroupNorm(16, b), conv(k, b, b, 3)
            self.has_shortcut = a != b
            if self.has_shortcut:
                self.shortcut = conv(k, a, b, 1)

        def forward(self, x):
            y = self.conv2(k.silu(self.norm2(self.conv1(k.silu(self.norm1(x))))))
            return y + (self.shortcut(x) if self.has_shortcut else x)

    class Model(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = conv(k, 4, 64, 3)
            self.down = k.nn.ModuleList([Block(64, 64), Block(64, 128), Block(128, 256)])
            self.smaller = k.nn.ModuleList([conv(k, 64, 64, 3, 2), conv(k, 128, 128, 3, 2)])
            self.middle = Block(256, 256)
            self.up = k.nn.ModuleList([Block(512, 256), Block(384, 128), Block(192, 64)])
            self.norm, self.last = k.nn.GroupNorm(16, 64), conv(k, 64, 4, 3)

        def forward(self, x):
            x, skips = self.first(x), []
            for level, block in enumerate(self.down):
                x = block(x)
                skips.append(x)
                if level < 2:
                    x = self.smaller[level](x)
            x = self.middle(x)
            for level, block in enumerate(self.up):
                x = block(k.concat_channels(k.twice(x) if level else x, skips.pop()))
            return self.last(k.silu(self.norm(x)))

    return Model()


def run_unet(k, model):
    images, target = k.image(sines(2, 4, 32, 32, step=0.01)), k.image(sines(2, 4, 32, 32, step=0.007, wave=np.cos))

    def step():
        out = model(images)
        return out, k.mse(out, target)
    return step


# ---- the encoder of Whisper-tiny ----------------------------------------------------------------------------------------


def whisper_encoder(k, size=384, inner=1536, count=6):
    class Layer(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = k.nn.LayerNorm(size), k.nn.LayerNorm(size)
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (k.nn.Linear(size, size, bias=i != 1) for i in range(4))
            self.fc1, self.fc2 = k.nn.Linear(size, inner), k.nn.Linear(inner, size)

        def forward(self, x):
            h = self.norm1(x)
            x = x + self.out_proj(merged(k.attention(*(heads(p(h), count) for p in (self.q_proj, self.k_proj, self.v_proj)))))
            return x + self.fc2(k.gelu(self.fc1(self.norm2(x))))

    class Model(k.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = k.nn.Conv1d(80, size, 3, padding=1), k.nn.Conv1d(size, size, 3, stride=2, padding=1)
            self.positions = k.parameter(1500, size)
            self.layers, self.norm = k.nn.ModuleList([Layer() for _ in range(4)]), k.nn.LayerNorm(size)

        def forward(self, mel):
            x = k.sequence(k.gelu(self.conv2(k.gelu(self.conv1(mel))))) + self.positions
            for layer in self.layers:
                x = layer(x)
            return self.norm(x)

    return Model()


def run_whisper_encoder(k, model):
    # The protocol's target is 0, for which the gradient vanishes: what a norm gives has a constant length.
    mel, target = k.image(sines(1, 80, 3000)), k.tensor(sines(1, 1500, 384))

    def step():
        out = model(mel)
        return out, k.mse(out, target)
    return step


WORKLOADS = {
    "SmolLM2-135M, 1 x 128": (language_model, run_language_model),
    "ResNet-50, batch 4": (resnet50, run_resnet50),
    "Stable Diffusion's U-Net, batch 2": (unet, run_unet),
    "Whisper-tiny's encoder": (whisper_encoder, run_whisper_encoder),
    "SmolVLA's action expert": (action_expert, run_action_expert),
}
