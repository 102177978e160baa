"""Patches a tokenizer.json, and prints C++ that holds tokenizers, texts and tokens, for make_bpe_goldens.py, make_unigram_goldens.py and
make_gguf_tokenizer_goldens.py."""

import json
import unicodedata

from tokenizers import Tokenizer


def patched(value, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), change)
    return result


def literal(text):
    """A C++ string literal; what is not printable becomes octal escapes."""
    out = ""
    for char in text:
        plain = char.isprintable() and unicodedata.category(char)[0] != "M" and unicodedata.bidirectional(char) not in ("R", "AL")
        out += "\\" + char if char in '"\\?' else char if plain else "".join(f"\\{byte:03o}" for byte in char.encode())
    return f'"{out}"sv'


def dump(value):
    return json.dumps(value, separators=(",", ":"))


def numbers(ids):
    return "{" + ", ".join(map(str, ids)) + "}"


def print_texts(name, texts):
    print(f"constexpr std::string_view {name}[] = {{")
    for text in texts:
        print(f"  {literal(text)},")
    print("};\n")


def print_bases(bases):
    print("constexpr std::string_view bases[] = {")
    for base in bases:
        print(f'  R"json({dump(base)})json"sv,')
    print("};\n")


def print_goldens(bases, texts, cases):
    """The tokens of each text for each case: a name, the number of a base, and its patch."""
    print("// name; base; patch; of each text the ids, those with special tokens as text, those with the tokens around it, the decoded text,")
    print("// and that without special tokens. `same`: as the first")
    print("const BpeGolden goldens[] = {")
    for name, base, patch in cases:
        tokenizer = Tokenizer.from_str(json.dumps(patched(bases[base], patch)))
        print(f'  {{"{name}", {base}, R"json({dump(patch)})json", {{')
        for text in texts:
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            around = tokenizer.encode(text).ids
            decoded = [literal(tokenizer.decode(ids, skip_special_tokens=skip)) for skip in (False, True)]
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            others = ["same" if row == ids else numbers(row) for row in (plain, around)]
            print(f"    {{{', '.join([numbers(ids), *others, *decoded])}}},")
        print("  }},")
    print("};")
