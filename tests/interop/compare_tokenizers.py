#!/usr/bin/env python3
"""Compares BpeTokenizer with Hugging Face's tokenizers (the package `tokenizers`, 0.22 or newer), token for token: lines of text
of many languages that the machine has (manuals, documents, headers, scripts), emoji and characters of every block, and random
bytes. transformers' AutoTokenizer opens what Rewind saves, and gives the same. Where a folder has a chat template, it also compares conversations with what transformers' apply_chat_template makes of them.
Without the packages tokenizers and transformers it says so, with exit status 77.

Usage: compare_tokenizers.py [--lines N] [--bytes N] [--texts FOLDER]... --program TOKENIZE [TOKENIZER...], or
compare_tokenizers.py --needs, which only looks for the packages.
TOKENIZE: build/tests/tokenize, or a command that runs it. TOKENIZER: a tokenizer.json, or a folder that has one; by default
one that the package trains on the texts."""

import argparse
import gzip
import random
import shlex
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

try:
    import tokenizers
    import transformers
except ImportError as error:
    print(f"there must be tokenizers and transformers: {error}")
    sys.exit(77)

TEXTS = ["/usr/share/man", "/usr/share/doc", "/usr/share/common-licenses", "/usr/share/i18n/locales", "/usr/include", "/usr/lib/python3"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<s>", "</s>", "<unk>", "<think>", "<0x0A>", "<bos>"]


def lines_of(folders, count):
    """Lines of files of all folders in a fixed order, at most 80 of a file, so that every language has some."""
    rng = random.Random(1)
    groups = {}
    for folder in folders:
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and not file.is_symlink():
                groups.setdefault("/".join(file.relative_to(folder).parts[:1]) if "man" in folder else folder, []).append(file)
    for files in groups.values():
        rng.shuffle(files)
    found, seen = [], set()
    while groups and len(found) < count:
        for name in list(groups):
            if not groups[name]:
                del groups[name]
                continue
            file = groups[name].pop()
            data = file.read_bytes()
            try:
                text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
            except (UnicodeDecodeError, OSError, EOFError):
                continue
            lines = [line for line in text.splitlines(keepends=True) if line not in seen]
            begin = rng.randrange(max(1, len(lines) - 80))
            seen.update(lines[begin:begin + 80])
            found += lines[begin:begin + 80]
    return found[:count]


def made_texts():
    """Characters of every block beside letters, digits, spaces and marks; emoji; special tokens; odd spaces; long words."""
    rng = random.Random(2)
    texts = ["", " ", "\n", "a" * 5000, " " * 5000 + "x", "\r\n" * 300, "0123456789" * 30, "'S'LL'ſ I'M we'VE", "👩‍👩‍👧 🇩🇪 ❤️ 👍🏽",
             "e\u0301 \u1100\u1161\u11a8 \ufb01 \u212b", " x", "x ", "  x  ", "\tx\t", "▁x ▁▁ x▁", "<0x41>"]
    # Both sides know these, whatever version of Unicode they have.
    assigned = [chr(c) for c in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    spaces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u3000", "\u0085", "\x0b", "\x0c", "\x1c", "\u200b", "\ufeff"]
    for _ in range(20000):
        parts = []
        for _ in range(rng.randint(1, 8)):
            kind = rng.randrange(6)
            parts.append(rng.choice(spaces) if kind == 0 else rng.choice(["'s", "'LL", "it's", "12345", "1", "word", ".,;", "x\u0301"])
                         if kind == 1 else rng.choice(SPECIAL) if kind == 2 and rng.randrange(4) == 0
                         else "".join(rng.choice(assigned) for _ in range(rng.randint(1, 4))))
        texts.append("".join(parts))
    return texts


def random_bytes(count):
    rng = random.Random(3)
    pieces = [b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", "é".encode(), "😀".encode(), b"word ", b"\xff", b"\n"]
    for _ in range(count):
        yield b"".join(rng.choice(pieces) if rng.randrange(3) == 0 else rng.randbytes(rng.randint(1, 6)) for _ in range(rng.randint(1, 12)))


def run(program, tokenizer, texts, *mode):
    sent = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return subprocess.run([*shlex.split(program), str(tokenizer), *mode], input=sent, stdout=subprocess.PIPE, check=True).stdout


def ours(program, tokenizer, texts, plain):
    """(ids, decoded bytes) of each text."""
    got, at = run(program, tokenizer, texts, *["plain"] * plain), 0
    for _ in texts:
        count, = struct.unpack_from("<I", got, at)
        ids = list(struct.unpack_from(f"<{count}i", got, at + 4))
        size, = struct.unpack_from("<I", got, at + 4 + 4 * count)
        begin = at + 8 + 4 * count
        yield ids, got[begin:begin + size]
        at = begin + size


def compare_saved(program, path, texts):
    """How many texts have other tokens, or tokens another text, in AutoTokenizer of what Rewind saves."""
    import transformers
    oracle = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    with tempfile.TemporaryDirectory() as folder:
        run(program, path, [], "save", folder)
        saved = transformers.AutoTokenizer.from_pretrained(folder)
    wrong = 0
    for text in texts:
        ids = oracle.encode(text).ids
        wrong += saved(text)["input_ids"] != ids or saved.decode(ids) != oracle.decode(ids, skip_special_tokens=False)
    print(f"{path}, saved: {len(texts)} texts, {wrong} differ")
    return wrong


def conversations():
    """Some of every kind, with blanks at the ends and thoughts of the assistant."""
    rng = random.Random(4)
    pieces = ["Hi", " a b ", "\n\nline\n", "2+2?", "<think>\nhm\n</think>\n\n4", "<think>\n\n</think>\n\n4", "</think>", "<tool_response>5</tool_response>", "", "é😀",
              "\t", "<|im_end|>"]
    for count in range(400):
        roles = [("user", "assistant")[i % 2] if count % 4 else rng.choice(["system", "user", "assistant"]) for i in range(rng.randint(1, 6))]
        chat = [{"role": role, "content": "".join(rng.choices(pieces, k=rng.randint(1, 2)))} for role in roles]
        yield [{"role": "system", "content": rng.choice(pieces)}] * rng.randrange(2) + chat


def compare_chats(program, folder):
    """How many conversations differ."""
    import transformers
    oracle = transformers.AutoTokenizer.from_pretrained(str(folder))
    chats, wrong = list(conversations()), 0
    got, at = run(program, folder, ["".join(f"{m['role']}: {m['content']}\0" for m in chat).encode() for chat in chats], "chat"), 0
    for chat in chats:
        size, = struct.unpack_from("<I", got, at)
        text, at = got[at + 4:at + 4 + size].decode(), at + 4 + size
        try:
            wanted = oracle.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except Exception:  # what the template raises
            wanted = "refused"
        # Gemma's template takes a message of the system for one of the assistant.
        is_stricter = text == "refused" and any(message["role"] == "system" for message in chat[1:])
        if text != wanted and not is_stricter:
            wrong += 1
            if wrong < 4:
                print(f"  {chat}: {text!r}, not {wanted!r}")
    print(f"{folder}: {len(chats)} conversations, {wrong} differ")
    return wrong


def trained(texts, folder):
    """Trains a byte-level tokenizer with special tokens, and returns its folder."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=4000, special_tokens=SPECIAL[:3], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.save(f"{folder}/tokenizer.json")
    return Path(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--bytes", type=int, default=10000)
    parser.add_argument("--texts", action="append")
    parser.add_argument("--program")
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("tokenizers", nargs="*", type=Path)
    options = parser.parse_args()
    if options.needs:
        return
    lines = lines_of(options.texts or TEXTS, options.lines)
    texts = [line.encode() for line in lines]
    made = tempfile.TemporaryDirectory()
    options.tokenizers = options.tokenizers or [trained(lines, made.name)]
    print(f"{len(texts)} lines of text, {sum(map(len, texts))} bytes")
    texts += [text.encode() for text in made_texts()] + list(random_bytes(options.bytes))
    failed = False
    for path in options.tokenizers:
        path = path / "tokenizer.json" if path.is_dir() else path
        for plain in (False, True):
            oracle = tokenizers.Tokenizer.from_file(str(path))
            oracle.encode_special_tokens = plain
            wrong, tokens = [], 0
            strings = [text.decode(errors="replace") for text in texts]
            wanted = [e.ids for e in oracle.encode_batch_fast(strings, add_special_tokens=False)]
            decoded = oracle.decode_batch(wanted, skip_special_tokens=False)
            for text, ids, back, (our_ids, our_back) in zip(texts, wanted, decoded, ours(options.program, path, texts, plain)):
                tokens += len(ids)
                if ids != our_ids:
                    wrong.append(f"  {text!r}: {our_ids}, not {ids}")
                elif back != our_back.decode(errors="replace"):
                    wrong.append(f"  {ids}: {our_back!r}, not {back!r}")
            print(f"{path}{' (plain)' if plain else ''}: {len(texts)} texts, {tokens} tokens, {len(wrong)} differ")
            print("\n".join(wrong[:5]), end="\n" if wrong else "")
            failed |= bool(wrong)
    for folder in options.tokenizers:
        failed |= compare_saved(options.program, folder, made_texts()[:4000]) > 0
        config = folder / "tokenizer_config.json"
        if config.exists() and "chat_template" in config.read_text():
            failed |= compare_chats(options.program, folder) > 0
    sys.exit(failed)


main()
