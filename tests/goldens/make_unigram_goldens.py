#!/usr/bin/env python3
"""Writes unigram.inc: what Hugging Face's tokenizers make of texts with added tokens of all kinds, normalizers, tokens around a text,
and unigram models.

Needs the packages `tokenizers` (0.22 or newer), and `sentencepiece`, which makes a small table of characters. The results are those of a
tokenizer trained here with a patch (RFC 7396) of its JSON. Usage: make_unigram_goldens.py > unigram.inc"""

import base64
import io
import json
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from make_bpe_goldens import BYTE_LEVEL, LINES, TEXTS, split, train_bytes
from token_goldens import dump, literal, print_bases, print_goldens, print_texts

MORE = ["a<x>b", "a <x> b", " \n<x>\t\u00a0c", "<x><x>", "<x> <x>  <y> <z> ", "\u3000<y>\u2028 d", "w<w>w <w> w<w>, (<w>) _<w> <w>1 é<w> <w>",
        "the<n>freedom <N> n", "ﬁ <ﬁ> <fi> ½ ①", "<r> <l>  <r>\n <l>", "<b> \n\n<c>", "ﷺ ㌀ Å Ω", "<x", "<s> <pad> </s> <unk>", "zzz☃☃ ☃a ☃",
        "the software", "trailing   ", "   both   ", "a  b   c", "<gap>", "freedom<w>", "<w>freedom", "\u200d<w>\u0301 <w>",
        "``The'' İΣ ΑΣ ǅ \u212a", "a\u0301\u0323 \u093f\u1cf2\u08d3 \u32ff", "of\nof \n\n", "\u200b\ufeff\u2028\x1f\u008fa", "\ufffd▁ ▁"]


def added(number, text, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": text, **plain, **flags}


def template(before, behind):
    special = lambda token, kind: {"SpecialToken": {"id": token[0], "type_id": kind}}
    parts = lambda name, kind: [special(t, kind) for t in before] + [{"Sequence": {"id": name, "type_id": kind}}] + [special(t, kind) for t in behind]
    return {"type": "TemplateProcessing", "single": parts("A", 0), "pair": parts("A", 0) + parts("B", 1),
            "special_tokens": {text: {"id": text, "ids": [number], "tokens": [text]} for text, number in before + behind}}


def step(kind, **options):
    return {"type": kind, **options}


def steps(*parts):
    return step("Sequence", normalizers=list(parts))


def replace(pattern, content, kind="String"):
    return step("Replace", pattern={kind: pattern}, content=content)


def train_pieces():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=230, show_progress=False, unk_token="<unk>",
                                                         special_tokens=["<pad>", "</s>", "<unk>"]))
    return json.loads(t.to_str())


def character_table():
    """The precompiled_charsmap of a few rules: NFKC of some characters, a sequence of two, a grapheme, and one that vanishes."""
    rules = {"ﬁ": "fi", "½": "1/2", "①": "1", "Å": "A", "e\u0301": "E", "\u200b": "", "☃": "snow", "\u00a0": " ", "\u3000": " "}
    code = lambda text: " ".join(f"{ord(c):X}" for c in text)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("".join(f"{code(a)}\t{code(b)}\n" for a, b in rules.items()))
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=model, vocab_size=160, hard_vocab_limit=False,
                                                 normalization_rule_tsv=file.name, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def print_digests():
    """Of all characters in a line each, or of those of Unicode 3.2 where the library has newer letters than ICU may have."""
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    old = [c for c in everything if unicodedata.ucd_3_2_0.category(c) != "Cn"]
    print("\n// A normalizer, whether it sees the characters of Unicode 3.2 only, and FNV-1a of what it makes of them, a line each")
    print("const NormalizerGolden normalizers[] = {")
    for name, options in (("NFC", {}), ("NFD", {}), ("NFKC", {}), ("NFKD", {}), ("Lowercase", {}), ("StripAccents", {}), ("Nmt", {}),
                          ("BertNormalizer", {}), ("BertNormalizer", {"strip_accents": True, "lowercase": False})):
        is_old = options.get("lowercase", name in ("Lowercase", "BertNormalizer"))
        text = getattr(normalizers, name)(**options).normalize_str("".join(c + "\n" for c in (old if is_old else everything)))
        digest = 0xcbf29ce484222325
        for byte in text.encode():
            digest = (digest ^ byte) * 0x100000001b3 % 2**64
        print(f'  {{R"json({dump(step(name, **options))})json", {str(is_old).lower()}, {digest:#x}u}},')
    print("};\n\n// A regular expression, or a text; a text in which - replaces its matches; the result")
    print("const ReplaceGolden replacements[] = {")
    for pattern, text in (("X*", "aXb"), ("X*", "XX"), ("X*", ""), ("^", "a\nb\rc\u2028d"), ("$", "a\nb\rc\u2028\n"), (".", "a\nb\r"), ("", "aXb")):
        result = normalizers.Replace(Regex(pattern) if pattern else pattern, "-").normalize_str(text)
        print(f"  {{{literal(pattern)}, {literal(text)}, {literal(result)}}},")
    print("};")


def main():
    bases = [train_bytes(), train_pieces()]
    tokens = bases[0]["added_tokens"]
    pieces = bases[1]["model"]["vocab"]
    size = len(pieces)
    fallback = [[f"<0x{byte:02X}>", -20.0 - byte / 100] for byte in range(256)]
    phi = [added(340, "<x>", lstrip=True, rstrip=True), added(341, "<y>", lstrip=True), added(345, "<z>", rstrip=True, special=False),
           added(346, "<w>", single_word=True), added(350, "<n>", normalized=True, lstrip=True, special=False),
           added(351, "<ﬁ>", normalized=True, special=False), added(360, "<r>", rstrip=True), added(361, "<l>", lstrip=True, rstrip=True),
           added(370, "<b>", rstrip=True, single_word=True), added(371, "\n<c>"), added(380, "<N>", normalized=True, rstrip=True, single_word=True)]
    # An id that the vocabulary does not have is only a wish: the library gives the next one.
    gaps = {"model": {"vocab": {token["content"]: token["id"] + 100 for token in phi[:-4]}}}
    nothing = {"type": "Sequence", "normalizers": []}
    words = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    form = lambda name: {"normalizer": {"type": name}}
    mark = bases[1]["added_tokens"]
    table = step("Precompiled", precompiled_charsmap=character_table())
    marks = [step("Prepend", prepend="▁"), replace(" ", "▁")]
    spaces = {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    # A token of the template may stand for several.
    several = template([("<|endoftext|>", 0), ("<|im_start|>", 1)], [("<|im_end|>", 2), ("<|endoftext|>", 0)])
    several["special_tokens"]["<|im_end|>"] = {"id": "<|im_end|>", "ids": [2, 5], "tokens": ["a", "b"]}
    cases = [
        ("phi4", 0, {"added_tokens": tokens + phi, **gaps}),
        ("phi4, nfkc", 0, {"added_tokens": tokens + phi, **gaps, **form("NFKC")}),
        ("eos", 0, {"post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, template([], [("<|im_end|>", 2), ("<|endoftext|>", 0)])]}}),
        ("roberta", 0, {"post_processor": {"type": "RobertaProcessing", "sep": ["<|im_end|>", 2], "cls": ["<|im_start|>", 1], "trim_offsets": True,
                                           "add_prefix_space": False}}),
        ("nfkd", 0, form("NFKD")),
        ("nfd", 0, form("NFD")),
        ("unigram", 1, {"added_tokens": mark + [added(size + 4, "<x>", lstrip=True), added(size + 9, "<w>", single_word=True, normalized=True)]}),
        ("t5", 1, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": words}, "post_processor": template([], [("</s>", 1)])}),
        ("fallback", 1, {"model": {"byte_fallback": True, "vocab": pieces + fallback}, "normalizer": nothing,
                         "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
                                                                                                  "prepend_scheme": "always", "split": True}]}}),
        ("special pieces", 1, {"added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Strip", "strip_left": False, "strip_right": True}, blanks]},
            "pre_tokenizer": {**words[1], "prepend_scheme": "first", "split": False}}),
        ("table", 1, {"normalizer": {"type": "Sequence", "normalizers": [
            table, {"type": "Replace", "pattern": {"String": "a$"}, "content": "\\$1"}]}}),
        ("unigram of bytes", 1, {"normalizer": nothing, "pre_tokenizer": {**BYTE_LEVEL, "use_regex": True}, "decoder": BYTE_LEVEL,
                                 "model": {"vocab": [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["Ġ", -3.5], ["a", -4.0], ["Ġa", -5.5],
                                                     ["Ãł", -6.0], ["aa", -8.0], ["software", -9.0], ["soft", -6.0], ["ware", -3.5]]}}),
        ("albert", 1, {"normalizer": steps(replace("``", '"'), replace("''", '"'), step("NFKD"), step("StripAccents"), step("Lowercase"), table),
                       "pre_tokenizer": {"type": "Sequence", "pretokenizers": words},
                       "post_processor": template([("<pad>", 0), ("<unk>", 2)], [("</s>", 1)])}),
        ("nested", 1, {"normalizer": steps(step("Nmt"), steps(step("Strip", strip_left=True, strip_right=False), steps(
            replace(r"^a?|\s+$|o*f", "w", "Regex"))), replace("ww", ""), step("Prepend", prepend="a"))}),
        ("marks", 1, {"normalizer": steps(*marks, step("NFKC"), step("Prepend", prepend="a ")), "pre_tokenizer": None, "decoder": spaces,
                      "post_processor": step("BertProcessing", sep=["</s>", 1], cls=["<pad>", 0])}),
        ("no marks", 1, {"normalizer": step("Lowercase"), "pre_tokenizer": None}),
        ("marks twice", 1, {"normalizer": steps(*marks)}),
        ("changed bytes", 0, {"normalizer": steps(step("NFD"), step("StripAccents"), step("Lowercase"), *marks),
                              "post_processor": several}),
        ("lines", 0, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(r"^.|\s$"), split(".", kind="String"), BYTE_LEVEL]}}),
    ]
    texts = TEXTS[1::2] + MORE
    print("// Written by make_unigram_goldens.py; do not edit.")
    print_bases(bases)
    print_texts("texts", texts)
    print_goldens(bases, texts, cases)
    print_digests()


if __name__ == "__main__":
    main()
