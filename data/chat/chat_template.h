// Runs chat templates, which are programs in Jinja, as transformers runs them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace rw {

// A turn of a conversation: its `content` and the `role` that says it, "system", "user" or
// "assistant".
struct ChatMessage {
  std::string role, content;
};

// A conversation to render.
struct ChatRequest {
  std::span<const ChatMessage> messages;  // its turns
  bool generation_prompt = true;          // up to where the assistant's answer begins
};

// The outcome of rendering a conversation.
struct RenderedChat {
  std::string text;     // by the template
  std::string refusal;  // why it refuses the conversation, or empty
};

// Renders conversations by a template, in one process of python3 with the package jinja2: the
// sandbox, filters and functions of transformers, no open files, a GiB of memory, 5 seconds of a
// processor. `tokens` are texts that the template may ask for by name: "bos_token". The first of
// `pythons` that has jinja2 is taken: Debian's package is for its own python3, which need not be
// the first one of $PATH. FileError where none has it; ValueError for a template that is none,
// takes too long, or takes too much.
std::vector<RenderedChat> run_chat_template(const std::string& jinja,
                                            const std::map<std::string, std::string>& tokens,
                                            std::span<const ChatRequest> requests,
                                            const std::vector<std::string>& pythons = {
                                                "python3", "/usr/bin/python3"});

}  // namespace rw
