#!/usr/bin/env python3
"""Writes chat.inc: conversations as Jinja renders them by templates that do what those of the published models do, without their
branches for tools. tests/interop/compare_tokenizers.py compares with the published ones, where they are at hand.

Needs Jinja (Debian: python3-jinja2). Usage: make_chat_goldens.py > chat.inc"""

import jinja2.sandbox

CHATML = """{% for message in messages %}DEFAULT{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
DEFAULT = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou help. It\\'s \\\\{}.<|im_end|>\\n' }}{% endif %}"
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

TEMPLATES = [("chatml", CHATML.replace("DEFAULT", "")), ("chatml", CHATML.replace("DEFAULT", DEFAULT)), ("qwen3", QWEN3), ("llama3", LLAMA3),
             ("llama3.1", LLAMA31), ("gemma", GEMMA), ("llama2", LLAMA2)]

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
]


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def literal(text):
    return '"' + "".join(c if c.isprintable() and c not in '"\\?' else "\\" + c if c in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
                         for c in text) + '"sv'


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # as transformers' is
    environment.globals["raise_exception"] = refuse
    print("// Written by make_chat_goldens.py; do not edit.")
    print("const std::vector<ChatMessage> chats[] = {")
    for chat in CHATS:
        print("  {" + ", ".join(f'{{"{role}", std::string({literal(content)})}}' for role, content in chat) + "},")
    print("};\n\n// the name; a template; each chat with its generation prompt, and without; 'refused' where the template does so")
    print("const ChatGolden chat_goldens[] = {")
    for name, source in TEMPLATES:
        template = environment.from_string(source)
        print(f'  {{"{name}", {literal(source)}, {{')
        for chat in CHATS:
            messages = [{"role": role, "content": content} for role, content in chat]
            texts = []
            for prompt in (True, False):
                try:
                    texts.append(template.render(messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"))
                except Refused:
                    texts.append("refused")
            print(f"    {{{literal(texts[0])}, {literal(texts[1])}}},")
        print("  }},")
    print("};")


main()
