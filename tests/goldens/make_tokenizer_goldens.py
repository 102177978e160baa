#!/usr/bin/env python3
"""Writes tokenizer.inc: the tokens of the reference BERT tokenizer for texts chosen here.

The algorithm is written anew from the description of google-research/bert's tokenization.py (basic
tokenization, then WordPiece), with Python's unicodedata, so that it shares nothing with data/.
Usage: make_tokenizer_goldens.py DATA_FOLDER > tokenizer.inc
DATA_FOLDER holds text/bert-base-uncased-vocab.txt, text/tinyshakespeare.txt and sst2/*.tsv; of the
last two only hashes are written.
"""

import random
import re
import sys
import unicodedata
from pathlib import Path

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = SPECIAL + """
a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 ##a ##b ##c ##d ##e ##f ##g ##h ##i ##j
##k ##l ##m ##n ##o ##p ##q ##r ##s ##t ##u ##v ##w ##x ##y ##z ##0 ##1 ##2 ##3 A B U W Ü É é ü un
##aff ##able ##affable want ##ed ##want the ##ing run ##running running caf cafe café naive uber
##straße strasse straße ß ##ß ! " # ## $ % & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | } ~
ο δ υ σ ς ε ##δ ##υ ##σ ##ε ##υς ##ς α ##α ##ω 中 国 文 字 ##国 一 豈 𠀀 の ##の ひ ##ら か
ᄒ ##ᅡ ##ᆫ ᄀ ##ᅳ ##ᆯ 한 ##글 и ##и ##й й п ##р ##в ##е ##т م ##ر ##ح ##ب ##ا ส ##ว ##ั ส ##ส ##ด ##ี
€ ™ ##™ … — “ ” « » ， 。 😀 ##😀 👍 ##🏽 ﬁ ##ﬁ ² ##² ½ Ⅳ ⅳ ǆ ##ǆ
""".split()
SMALL = list(dict.fromkeys(SMALL))

TEXTS = [
    "", " ", "\t\r\n", "unaffable", "UNwanted,running", "Unwanted running!", "unwantedX running",
    "  the \t running\n\nuncaffed  ", "can't stop -- won't", "a.b.c...", "$1.23 [50%] {x|y}~`^_@#\\",
    "Café naïve Über", "Cafe\u0301 nai\u0308ve U\u0308ber", "q\u0323\u0307 q\u0307\u0323 \u1e69",
    "\u0301 \u0301\u0302", "a\u0301\u0301\u0301b", "Straße STRASSE ẞ ß", "İstanbul Iğdır ISTANBUL ı",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. ΑΣ.Α Α'Σ ΣΣ", "ΑΣ\u0301 ΑΣ\u00adΑ", "ǅ Ǆ ǆ", "ﬁn ﬃ ² ½ Ⅳ ⅳ ℌ Ω Å",
    "中国文字", "a中b国c", "豈 \u4e00\u9fff\u3400\u4dbf\U00020000\U0002a6df\U0002f800 \U00030000",
    "ひらがな カタカナ ｶﾞ", "한글 각 힣 \u1112\u1161\u11ab", "Привет Йод ё", "مرحبا بالعالم مُحَمَّد",
    "สวัสดี ชาวโลก", "नमस्ते क्षत्रिय", "שָׁלוֹם", "Việt Nam tiếng", "😀 👍🏽👩‍👩‍👧 ❤️ 🇩🇪", "x😀y",
    "a\u200bb\u200dc\u2060d\ufeffe", "a\u00a0b\u2003c\u3000d\u1680e\u202ff", "a\u2028b\u2029c",
    "a\x00b\x01c\x0bd\x0ce\x1cf\x1fg\x7fh\x85i\x9fj", "a\ufffdb \ufffd", "\u00adsoft\u00adhyphen",
    "“quoted” «texte» … — – ‚a‘ ¿que? ¡si!", "，。、！「中」", "€5 £6 ¥7 ¢ ™ ® ©", "a\u0300中\u0300b",
    "\u037e \u0387 \u1fef \u2126 \u212a", "\ue000 a\ue000b", "[MASK]", "the [MASK] running.",
    "a[MASK]b[SEP][CLS]", "[mask] [MASK [ MASK ] [[MASK]] [UNK]", "##able un##able # #",
    "x" * 100, "x" * 101, "x" * 200, "x" * 201, "é" * 200 + " " + "é" * 201, "😀" * 200,
    "e\u0301" * 201, "\u1e9b\u0323 \ufb1d \u0f73 \u0344 \u1d15e \U0001d15e \u302e\u302f",
    "\u0b4b\u0d4a \uab1e\u1b44a", "𝓗ello 𝕎orld ｆｕｌｌ　ｗｉｄｔｈ", "Dz\u0327\u0323\u0301 x",
]


def words_of(text, lower):
    """The basic tokenizer."""
    cleaned = []
    for char in text:
        category = unicodedata.category(char)
        code = ord(char)
        if char in "\t\n\r" or category == "Zs":
            cleaned.append(" ")
        elif code in (0, 0xFFFD) or category in ("Cc", "Cf"):
            continue
        elif any(a <= code <= b for a, b in (
                (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
                (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))):
            cleaned.append(f" {char} ")
        else:
            cleaned.append(char)
    for word in "".join(cleaned).split():
        if lower:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        part = ""
        for char in word:
            mark = unicodedata.category(char)[0] == "P" or (char.isascii() and not char.isalnum()
                                                             and char.isprintable() and char != " ")
            if not mark:
                part += char
                continue
            if part:
                yield part
            yield char
            part = ""
        if part:
            yield part


def pieces_of(word, vocabulary, limit):
    """WordPiece: longest match first."""
    if len(word) > limit:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = (e for e in range(len(word), start, -1) if prefix + word[start:e] in vocabulary)
        end = next(ends, None)
        if end is None:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def tokenize(text, vocabulary, lower=True, limit=200, special=True):
    pattern = "(" + "|".join(map(re.escape, SPECIAL)) + ")"
    for part in re.split(pattern, text) if special else [text]:
        if special and part in SPECIAL:
            yield part
            continue
        for word in words_of(part, lower):
            yield from pieces_of(word, vocabulary, limit)


def fuzz(count):
    """Returns short texts of characters from all parts of Unicode 14."""
    assigned = [c for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    pools = ["abcdefgABUW  .,'-", "éüß İıΣσς ", "".join(map(chr, range(0x300, 0x370))), "中国一豈 ",
             "".join(map(chr, range(0, 0x250))), None]
    rng = random.Random(1)
    for _ in range(count):
        chars = []
        for _ in range(rng.randint(5, 30)):
            pool = rng.choice(pools)
            chars.append(rng.choice(pool) if pool else chr(rng.choice(assigned)))
        yield "".join(chars)


def literal(text):
    """Returns a C++ string literal; other than printable characters become octal escapes."""
    out = ""
    for char in text:
        marks = unicodedata.category(char)[0] == "M"
        if char in '"\\?':
            out += "\\" + char
        elif char.isprintable() and not marks and unicodedata.bidirectional(char) not in ("R", "AL"):
            out += char
        else:
            out += "".join(f"\\{byte:03o}" for byte in char.encode())
    return f'"{out}"sv'


class Hash:
    """FNV-1a, 64 bits."""

    def __init__(self):
        self.value = 0xCBF29CE484222325

    def add(self, data):
        for byte in data:
            self.value = (self.value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF


def every_character():
    """Returns the words of texts with each assigned character at the start, inside and at the end of words."""
    for lower in (True, False):
        digest = Hash()
        for code in range(0x110000):
            char = chr(code)
            if unicodedata.category(char) not in ("Cn", "Cs"):
                for word in words_of(f"Ab{char}c\u0323Σ{char} {char}Σ", lower):
                    digest.add(word.encode() + b"\n")
        yield digest.value


def main():
    data = Path(sys.argv[1])
    published = (data / "text/bert-base-uncased-vocab.txt").read_text("utf-8").split("\n")[:-1]
    ids = {token: i for i, token in enumerate(published)}
    small = set(SMALL)
    print("// Written by make_tokenizer_goldens.py; do not edit.")
    print("constexpr auto small_vocabulary =")
    rows = (literal(" ".join(SMALL[i:i + 12]) + " ") for i in range(0, len(SMALL), 12))
    print("    " + "\n    ".join(row.removesuffix("sv") for row in rows) + ";\n")
    print("// text; tokens of the small vocabulary, lower-cased; the same, cased; of the published one")
    print("constexpr Golden goldens[] = {")
    for text in TEXTS + list(fuzz(80)):
        print("  {" + literal(text) + ",")
        print("   " + literal(" ".join(tokenize(text, small))) + ",")
        print("   " + literal(" ".join(tokenize(text, small, lower=False))) + ",")
        print("   " + literal(" ".join(tokenize(text, ids))) + "},")
    print("};\n")
    lower, cased = every_character()
    print(f"constexpr uint64_t every_character_lower = {lower:#x}, every_character_cased = {cased:#x};\n")
    print("// Hash of the ids that the lines of a file have with the published vocabulary.")
    print("constexpr FileGolden file_goldens[] = {")
    for name in ("text/tinyshakespeare.txt", "sst2/train.tsv", "sst2/dev.tsv", "sst2/test.tsv"):
        digest, count = Hash(), 0
        for line in (data / name).read_text("utf-8").split("\n"):
            for token in tokenize(line, ids):
                digest.add(ids[token].to_bytes(4, "little"))
                count += 1
        print(f'  {{"{name}", {count}, {digest.value:#x}}},')
    print("};")


main()
