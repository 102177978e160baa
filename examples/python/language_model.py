"""A language model within one number of memory: GPT-2's shape, small, on the bytes of a text.

    python language_model.py [TEXT [MEMORY]]        python language_model.py book.txt 64MiB
"""
import pathlib
import sys

import numpy as np

import rewind as rw

text = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).read_bytes()
length, batch, steps = 64, 16, 60


def make():
    """The model and its optimizer, as every run makes them."""
    rw.manual_seed(1)
    model = rw.nn.GptLMHeadModel("gpt2", vocab_size=256, n_positions=length, n_embd=64, n_layer=4, n_head=4,
                                 resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return model, rw.optim.AdamW(model.parameters(), lr=1e-3)


def step(model, optimizer, windows):
    ids, targets = rw.tensor(windows[:, :-1], dtype="i32"), rw.tensor(windows[:, 1:], dtype="i32")
    loss = model.loss(ids, targets)
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()
    return loss


def program():
    """Two steps, for the forecast."""
    model, optimizer = make()
    for _ in range(2):
        step(model, optimizer, np.zeros((batch, length + 1), np.uint8))


needed = rw.dry_run(program)["reserved"]
limit = rw.parse_bytes(sys.argv[2]) if len(sys.argv) > 2 else needed * 2 // 3
print(f"a step needs {rw.format_bytes(needed)} and gets {rw.format_bytes(limit)}")

random = np.random.default_rng(1)
data = np.frombuffer(text, np.uint8)
with rw.memory(limit):
    model, optimizer = make()
    for i in range(steps):
        starts = random.integers(0, len(data) - length - 1, batch)
        loss = step(model, optimizer, np.stack([data[s:s + length + 1] for s in starts]))
        if i % 20 == 19:
            print(f"step {i + 1}: loss {loss.item():.3f}")
print(f"peak {rw.format_bytes(rw.memory_report()['peak_reserved'])}")
prompt = rw.tensor(np.frombuffer(b"import ", np.uint8)[None], dtype="i32")
print(bytes(model.generate(prompt, max_new_tokens=length - 7, temperature=0.5).tolist()[0]).decode(errors="replace"))
