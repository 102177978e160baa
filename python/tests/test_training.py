"""Modules, optimizers, files, memory and data."""
import copy
import math
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import rewind as rw
from rewind import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.hidden = nn.Linear(4, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(width, width), rw.relu) for _ in range(2)])
        self.out = nn.Linear(width, 3)
        self.scale = nn.Parameter(rw.ones(3))
        self.register_buffer("seen", rw.zeros(1))

    def forward(self, x):
        x = rw.relu(self.hidden(x))
        for block in self.blocks:
            x = block(x)
        return self.out(x) * self.scale


def data(n=32):
    random = np.random.default_rng(2)
    x = random.standard_normal((n, 4), dtype=np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def train(model, optimizer, steps=3, n=32):
    x, labels = data(n)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = rw.cross_entropy(model(rw.tensor(x)), labels)
        optimizer.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def resident_kib():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


class Modules(unittest.TestCase):
    def test_names(self):
        names = ["scale", "hidden.weight", "hidden.bias", "blocks.0.0.weight", "blocks.0.0.bias", "blocks.1.0.weight", "blocks.1.0.bias",
                 "out.weight", "out.bias"]
        net = Net()
        self.assertEqual([name for name, _ in net.named_parameters()], names)
        self.assertEqual(list(net.state_dict()), names + ["seen"])
        del net.out
        net.hidden = nn.Linear(4, 5)
        self.assertEqual([n for n, _ in net.named_parameters()][-2:], ["hidden.weight", "hidden.bias"])
        self.assertEqual(net.get_submodule("blocks.1.0").weight.shape, (8, 8))

    def test_states(self):
        a, b = Net(), Net()
        b.load_state_dict({name: t.numpy() for name, t in a.state_dict().items()})
        x = rw.tensor(data()[0])
        for other in (b, pickle.loads(pickle.dumps(a)), copy.deepcopy(a)):
            self.assertEqual(other(x).numpy().tobytes(), a(x).numpy().tobytes())
        with self.assertRaisesRegex(ValueError, "scale"):
            b.load_state_dict({})
        state = a.state_dict()
        state["out.weight"] = np.zeros((2, 2))
        with self.assertRaises(rw.ShapeError):
            b.load_state_dict(state)

    def test_modes_and_dtypes(self):
        net = Net().eval()
        self.assertFalse(net.training or net.blocks[0][0].training)
        self.assertEqual(net.train().half().hidden.weight.dtype, rw.f16)

    def test_a_parameter_is_shared(self):
        net = Net()
        net.blocks[1][0].other = net.scale
        self.assertEqual(len(net.parameters()), 9)

    def test_layers_of_cpp(self):
        conv = nn.Conv2d(3, 8, 3, padding=1)
        self.assertEqual(conv.state_dict()["weight"].shape, (8, 3, 3, 3))
        self.assertEqual(conv(rw.zeros((1, 4, 4, 3))).shape, (1, 4, 4, 8))
        y, (h, c) = nn.LSTM(4, 6)(rw.zeros((3, 2, 4)))
        self.assertEqual((y.shape, h.shape, c.shape), ((3, 2, 6), (1, 2, 6), (1, 2, 6)))
        layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, activation="gelu")
        self.assertEqual(layer(rw.zeros((2, 5, 8)), causal=True).shape, (2, 5, 8))
        self.assertEqual(pickle.loads(pickle.dumps(layer)).linear1.weight.shape, (16, 8))
        self.assertIn("out_features=3", repr(Net()))
        net = nn.resnet_cifar(8)
        self.assertIsInstance(net.conv1, nn.Conv2d)
        self.assertEqual(net(rw.zeros((1, 32, 32, 3))).shape, (1, 10))

    def test_a_child_outlives_the_variable_of_its_parent(self):
        weight = nn.resnet_cifar(8).conv1
        self.assertEqual(weight(rw.zeros((1, 8, 8, 3))).shape, (1, 8, 8, 16))

    def test_segments_have_the_same_bits(self):
        found = []
        for every in (0, 1):
            rw.manual_seed(1)
            model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]).checkpoint_every(every)
            model(rw.tensor(data()[0])).sum().backward()
            found.append([p.grad.numpy().tobytes() for p in model.parameters()])
        self.assertEqual(*found)


class Models(unittest.TestCase):
    def test_bert(self):
        sizes = dict(vocab_size=40, max_position_embeddings=16)
        ids, lengths = np.arange(20).reshape(2, 10), np.array([10, 7])
        bert = nn.BertModel("tiny", **sizes).eval()
        hidden = bert(ids, lengths=lengths)
        self.assertEqual((hidden.shape, bert.pool(hidden).shape), ((2, 10, 128), (2, 128)))
        np.testing.assert_allclose(bert(ids[1:, :7]).numpy(), hidden.numpy()[1:, :7], atol=1e-5)
        training = nn.BertForPreTraining("tiny", **sizes).eval()
        hidden, at, targets = training(ids), np.array([3, 15]), np.array([1, 2])
        loss = training.token_loss(hidden, at, targets)
        wanted = rw.cross_entropy(training.token_logits(hidden, at), targets)
        self.assertAlmostEqual(loss.item(), wanted.item(), places=4)
        self.assertEqual(training.next_sentence_logits(hidden).shape, (2, 2))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            rw.save_model(path, training)
            classifier = nn.BertForSequenceClassification(3, "tiny", **sizes)
            missing, unexpected = classifier.load(path)
            self.assertEqual(sorted(missing), ["classifier.bias", "classifier.weight"])
            self.assertTrue(unexpected)
            self.assertEqual(classifier(ids).shape, (2, 3))
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            nn.BertModel("tiny", layers=3)

    def test_speech(self):
        for loss in ("ctc", "rnnt"):
            with self.subTest(loss):
                rw.manual_seed(1)
                model = nn.SpeechRecognizer(loss, classes=5, channels=8, hidden=16).eval()
                sound = np.random.default_rng(1).standard_normal(8000).astype(np.float32) * 0.1
                features = model.features(sound[None])
                frames = features.shape[1]
                value = model.loss(features, np.array([frames]), np.array([[1, 2, 1]]), np.array([3]))
                value.backward()
                self.assertTrue(math.isfinite(value.item()))
                labels, = model.recognise(features, [frames])
                stream = nn.SpeechStream(model)
                for start in range(0, 8000, 700):
                    stream.feed(sound[start:start + 700])
                stream.finish()
                self.assertEqual(stream.labels, labels)
                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "heard.safetensors")
                    rw.save_recognizer(path, model, ["one", "two", "three", "four"])
                    again, units = rw.load_recognizer(path)
                    self.assertEqual((units[1], again.eval().recognise(features, [frames])), ("two", [labels]))
        with self.assertRaises(ValueError):
            nn.SpeechRecognizer("mse")

    def test_images(self):
        image = rw.zeros((1, 32, 32, 3))
        self.assertEqual(nn.UNet(width=4, levels=2, classes=5)(image).shape, (1, 32, 32, 5))
        vit = nn.ViT(image_size=32, patch_size=8, hidden=16, layers=2, heads=2, mlp=32, classes=7)
        self.assertEqual(vit(image).shape, (1, 7))
        self.assertEqual(nn.MobileNetV2(classes=4, width=0.25, stem_stride=1).eval()(image).shape, (1, 4))
        self.assertEqual(nn.resnet_imagenet(18, classes=6).eval()(image).shape, (1, 6))


class Optimizers(unittest.TestCase):
    def test_all_learn(self):
        makers = {name: getattr(rw.optim, name) for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adafactor", "Lamb", "Lion")}
        for name, make in makers.items():
            with self.subTest(name):
                rw.manual_seed(4)
                net = Net()
                losses = train(net, make(net.parameters(), lr=0.1 if name in ("SGD", "Adafactor") else 0.01), 20)
                self.assertLess(losses[-1], losses[0])

    def test_groups_and_windows(self):
        net = Net()
        optimizer = rw.optim.Accumulate(rw.optim.SGD([{"params": net.hidden.parameters(), "lr": 0.0}, {"params": net.out.parameters()}],
                                                     lr=0.1), 2)
        before = net.hidden.weight.numpy().copy(), net.out.weight.numpy().copy()
        x, labels = data()
        stepped = []
        for _ in range(2):
            optimizer.backward(rw.cross_entropy(net(rw.tensor(x)), labels))
            stepped.append(optimizer.step())
        self.assertEqual(stepped, [False, True])
        self.assertTrue(np.array_equal(net.hidden.weight.numpy(), before[0]))
        self.assertFalse(np.array_equal(net.out.weight.numpy(), before[1]))

    def test_an_optimizer_that_was_taken_is_refused(self):
        plain = rw.optim.SGD(Net().parameters())
        rw.optim.FusedBackward(plain)
        with self.assertRaises(TypeError):
            plain.step()

    def test_schedule_state_and_average(self):
        net = Net()
        optimizer = rw.optim.AdamW(net.parameters(), lr=0.01)
        optimizer.set_schedule(rw.optim.Schedule.linear(10))
        optimizer.set_scaler(rw.optim.LossScaler.dynamic())
        average = rw.optim.Ema(optimizer, decay=0.5)
        train(net, optimizer)
        self.assertEqual(optimizer.updates(), 3)
        self.assertAlmostEqual(optimizer.learning_rate(), 0.01 * 0.8, places=6)
        own = net.scale.numpy().copy()
        with average:
            self.assertFalse(np.array_equal(net.scale.numpy(), own))
        other = Net()
        other.load_state_dict(net.state_dict())
        again = rw.optim.AdamW(other.parameters(), lr=0.01)
        again.set_schedule(rw.optim.Schedule.linear(10))
        again.set_scaler(rw.optim.LossScaler.dynamic())
        again.load_state_dict(optimizer.state_dict())
        self.assertEqual(train(net, optimizer), train(other, again))


class Memory(unittest.TestCase):
    def step(self, n=256):
        rw.manual_seed(5)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(4 if i == 0 else 64, 64), nn.Tanh()) for i in range(12)], nn.Linear(64, 3))
        optimizer = rw.optim.Adam(model.parameters())
        losses = train(model, optimizer, 3, n)
        return losses, [p.numpy().tobytes() for p in model.parameters()]

    def test_a_dry_run_knows_the_peak(self):
        forecast = rw.dry_run(self.step)
        rw.default_device().reset_peak()
        before = rw.memory_report()["live"]
        self.step()
        self.assertEqual(forecast["peak"], rw.memory_report()["peak"] - before)
        self.assertIn("peak", repr(forecast))

    def test_one_number_keeps_the_bits(self):
        plain = self.step(2048)
        peak = rw.dry_run(lambda: self.step(2048))["reserved"]
        rw.default_device().trim()
        with rw.memory(peak * 3 // 4):
            self.assertEqual(self.step(2048), plain)

    def test_fit(self):
        def step(n):
            self.step(n)
        least, more = rw.dry_run(lambda: step(64))["reserved"], rw.dry_run(lambda: step(65))["reserved"]
        n = rw.fit(step, least)
        self.assertGreaterEqual(n, 64)
        self.assertGreaterEqual(more, least)
        self.assertGreater(rw.dry_run(lambda: step(n + 1))["reserved"], least)
        self.assertEqual(rw.fit(step, least, most=48), 48)
        self.assertEqual(rw.fit(step, 4096), 0)
        with self.assertRaisesRegex(KeyError, "mine"):
            rw.fit(lambda n: {}["mine"], least)

    def test_out_of_memory_says_what_would_help(self):
        with self.assertRaisesRegex(MemoryError, "bytes|GiB|MiB|KiB"), rw.memory("64KiB"):
            self.step(4096)

    def test_steps_leave_nothing(self):
        net = Net()
        optimizer = rw.optim.Adam(net.parameters())
        train(net, optimizer, 50)
        before = resident_kib()
        train(net, optimizer, 1000)
        self.assertLess(resident_kib() - before, 2048)


class Files(unittest.TestCase):
    def test_models_and_tensors(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            a, b = Net(), Net()
            rw.save_model(path, a)
            self.assertEqual(rw.load_model(path, b), ([], []))
            self.assertEqual(set(rw.load_safetensors(path)), set(a.state_dict()))
            rw.save_safetensors(path, {"x": np.arange(3), "y": rw.ones((2,), dtype="f16")}, {"who": "me"})
            found = rw.load_safetensors(path)
            self.assertEqual((found["x"].tolist(), found["y"].dtype), ([0, 1, 2], rw.f16))

    def test_decoder(self):
        sizes = dict(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
        model = rw.nn.Decoder("tiny", **sizes)
        ids = np.arange(16).reshape(1, 16)
        self.assertEqual(model(ids).shape, (1, 16, 50))
        self.assertGreater(rw.perplexity(model, list(range(32)), 16), 1)
        with self.assertRaisesRegex(ValueError, "hidden_size"):
            rw.nn.Decoder("tiny", hidden=16)
        with self.assertRaises(TypeError):
            rw.nn.Decoder("tiny", hidden_size="wide")
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            again = rw.nn.Decoder.from_files(folder, dtype="f32", keep_blocks=True)
            self.assertEqual(again(ids).numpy().tobytes(), model(ids).numpy().tobytes())
            names = rw.lora.add(model, rank=2)
            self.assertEqual(len(names), 14)
            with rw.no_grad():
                for name, p in model.named_parameters():
                    if "lora_B" in name or "lora_b" in name:
                        p.normal_(0, 1)
            rw.lora.save(os.path.join(folder, "adapter"), model, base_model=folder)
            self.assertEqual(rw.lora.load(os.path.join(folder, "adapter"), again), names)
            self.assertEqual(again(ids).numpy().tobytes(), model(ids).numpy().tobytes())

    def test_language_model(self):
        model = rw.nn.GptLMHeadModel("gpt2", n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=32)
        ids = rw.zeros((1, 8), dtype="i32")
        self.assertAlmostEqual(model.loss(ids, ids).item(), math.log(50), delta=1)
        self.assertEqual(model.generate(ids, max_new_tokens=3).shape, (1, 11))
        names = rw.lora.add(model, rank=2, target_modules=["c_attn"])
        self.assertEqual(len(names), 2)
        self.assertTrue(all("lora" in n for n, p in model.named_parameters() if p.requires_grad))


class Data(unittest.TestCase):
    def test_epochs(self):
        x, labels = data(10)
        for workers in (0, 2):
            loader = rw.data.DataLoader((x, labels), batch_size=4, shuffle=True, workers=workers)
            epochs = [[int(i) for _, y in loader for i in y.tolist()] for _ in range(2)]
            self.assertEqual(len(loader), 3)
            self.assertEqual(sorted(epochs[0]), sorted(labels.tolist()))
            self.assertNotEqual(epochs[0], epochs[1])
        self.assertEqual(len(rw.data.DataLoader((x, labels), batch_size=4, drop_last=True)), 2)
        pairs = list(rw.data.DataLoader([(x[i], labels[i]) for i in range(5)], batch_size=2))
        self.assertEqual(pairs[0][0].shape, (2, 4))

    def test_errors_of_workers_arrive(self):
        class Broken:
            def __len__(self):
                return 4

            def __getitem__(self, i):
                raise KeyError(i)
        with self.assertRaises(KeyError):
            list(rw.data.DataLoader(Broken(), workers=2))


class Process(unittest.TestCase):
    def test_fork_is_refused(self):
        rw.zeros(1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                rw.zeros(1)
                os.write(writer, b"no error")
            except BaseException as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn(b"spawn", os.read(reader, 1000))

    def test_import_is_quick_and_late(self):
        code = "import time; t = time.perf_counter(); import rewind; print(time.perf_counter() - t, 'numpy' in __import__('sys').modules)"
        seconds, numpy = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(numpy, "False")
        self.assertLess(float(seconds), 1.5)  # ten times what it takes, as machines are busy


if __name__ == "__main__":
    unittest.main()
