#!/usr/bin/env python3
"""Writes bpe.inc: what Hugging Face's tokenizers make of texts chosen here, and which merges their trainer finds in them.

Needs the package `tokenizers` (Debian: python3-tokenizers), of which two tokenizers are trained here: one of bytes, and one of
characters with byte fallback. Others are these with a patch (RFC 7396) of their JSON. Usage: make_bpe_goldens.py > bpe.inc"""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from token_goldens import print_bases, print_goldens, print_texts

LINES = """The licenses for most software are designed to take away your freedom to share and change it.
By contrast, the GNU General Public License is intended to guarantee your freedom to share and change free software.
When we speak of free software, we are referring to freedom, not price. It's 1991, and we've 12345 of them; they'll say: I'm, he'd.
Our General Public Licenses are designed to make sure that you have the freedom to distribute copies of free software.
Die Lizenzen der meisten Programme sind darauf angelegt, Ihnen die Freiheit zu nehmen, sie zu teilen und zu ändern. Größe, Übergröße.
Лицензии на большую часть программного обеспечения лишают вас свободы делиться им и изменять его.
多くのソフトウェアのライセンスは、あなたがそのソフトウェアを共有したり変更したりする自由を奪うように設計されています。
for (int i = 0; i < 100; ++i) {\n    total += values[i] * values[i];\n    if (total > 1000) return total;\n}
aaaaaaaaaaaaaaa aaaa aaaaa aaaaaa  two  spaces   three\tand a tab 😀😀 👍🏽 naïve café cafe\u0301""".split("\n")

TEXTS = [
    "", " ", "  ", "\n", "a", " a", "The freedom to share", "the freedom  to   share\n\n", "It's we'VE I'M 'tis 'LL ''s", "'ſ 'S",
    "1991 12345 1234567 ½ Ⅳ ² ١٢٣", "x1y22z333", "Größe Übergröße naïve café cafe\u0301 q\u0323\u0307", "\u212b \ufb01 \u1100\u1161\u11a8 한글",
    "Лицензии свободы", "ソフトウェア 多くの自由", "😀 👍🏽 👩‍👩‍👧 🇩🇪 ❤️", "for (int i = 0; i < 100; ++i) {\n    total += values[i];\n}\n",
    "\t\ttabs\tand\r\nlines\r\r\n  \n x", "a\u00a0b\u3000c\u2028d\u0085e\x0bf\x1cg\u200bh\ufeff", "aaaaaaaaaaaaaaaaaaaaaaa", "aaaa aaa aa",
    "<|im_start|>user\nhi<|im_end|>", "<|im_end|>", "a<|im_end|><|im_end|> b", "<|im_end|", "<think>\nso</think>", "<s>a</s> b", "<s> a",
    "▁ ▁a a▁", "<0x41> <0xE2>", "\x00\x01\x7f", "\ufffd \ue000", "؟ مرحبا בית", "...!!!\n\n", "a.b,c;d", " \n \n x", "word\n", "x  \n",
    "of of of software software", "UPPER lower CamelCase snake_case", "---- ==== ####", "“quoted” «texte» – …", "e\u0301\u0301", "l'été d'où",
]

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}| ", r"|\p{N}{1,3}| ")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def template(token, number):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}}}


def train_bytes():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, min_frequency=2, show_progress=False, special_tokens=SPECIALS,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(["<think>", "</think>"])
    return json.loads(t.to_str())


def train_characters():
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # Cut into words for the training only.
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=420, min_frequency=2, show_progress=False, limit_alphabet=80,
                                                     special_tokens=["<unk>", "<s>", "</s>"] + fallback))
    trained = json.loads(t.to_str())
    trained["pre_tokenizer"] = None
    trained["added_tokens"] = [token for token in trained["added_tokens"] if token["content"] not in fallback]
    return trained


def main():
    bases = [train_bytes(), train_characters()]
    merges = [" ".join(merge) for merge in bases[0]["model"]["merges"]]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    nothing = {"type": "Sequence", "normalizers": []}
    sequence = lambda *steps: {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}
    # Of Llama 3's, words whose merge is missing are found as a whole.
    cases = [
        ("qwen2", 0, {}),
        ("llama3", 0, {"normalizer": nothing, **sequence(split(LLAMA3), BYTE_LEVEL), "model": {"ignore_merges": True, "merges": merges[:-12]},
                       "post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, template("<|endoftext|>", 0)]}}),
        ("gpt2", 0, {"normalizer": nothing, "pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True}}),
        ("smollm", 0, {"normalizer": nothing, **sequence({"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True})}),
        ("removed", 0, sequence(split("[aeiou]+", "Removed"), split(r"\w+|[^\w\s]+", "Removed", True), BYTE_LEVEL)),
        ("merged", 0, sequence(split(" ", "MergedWithPrevious", False, "String"), split("[a-z]", "MergedWithNext"), BYTE_LEVEL)),
        ("bert", 0, {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                                    "lowercase": True}, **sequence({"type": "BertPreTokenizer"}, BYTE_LEVEL)}),
        ("bert, cased", 0, {"normalizer": {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
                                           "strip_accents": True, "lowercase": False}, **sequence({"type": "Whitespace"}, BYTE_LEVEL)}),
        ("punctuation", 0, sequence({"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Punctuation", "behavior": "Removed"},
                                    BYTE_LEVEL)),
        ("llama2", 1, {"post_processor": template("<s>", 1)}),
        ("gemma", 1, {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                      "pre_tokenizer": split(" ", "MergedWithPrevious", False, "String"),
                      "decoder": {"type": "Sequence", "decoders": bases[1]["decoder"]["decoders"][:3]}}),
        ("mistral", 1, {"normalizer": nothing, "pre_tokenizer": metaspace}),
        ("metaspace", 1, {"normalizer": nothing, "pre_tokenizer": {**metaspace, "prepend_scheme": "always", "split": True}}),
    ]
    print("// Written by make_bpe_goldens.py; do not edit.")
    print_texts("train_lines", LINES)
    print_bases(bases)
    print_texts("texts", TEXTS)
    print_goldens(bases, TEXTS, cases)


if __name__ == "__main__":
    main()
