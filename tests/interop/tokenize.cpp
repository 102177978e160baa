// Tokenizes for compare_tokenizers.py. Usage: tokenize TOKENIZER [plain | chat | save FOLDER] <
// TEXTS > RESULTS. TOKENIZER: tokenizer.json, a folder with it, or FILE.gguf. A text is a number of
// bytes (32 bits) and these; a result the number of its tokens, their ids, and the decoded text in
// the form of a text. With `plain`, special tokens in texts are text. With `chat`, a text is a
// conversation, "role: content" with a zero byte behind each, and a result what the chat template
// makes of it, or "refused". With `save`, the tokenizer is written into a folder.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "trainer/language/language_model.h"

namespace {

template <class Values>
void put(const Values& values) {
  const auto size = static_cast<uint32_t>(values.size());
  std::cout.write(reinterpret_cast<const char*>(&size), sizeof(size));
  std::cout.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(size * sizeof(values[0])));
}

std::string render(const rw::ChatFormat& format, const std::string& text) {
  std::vector<rw::ChatMessage> messages;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin), colon = text.find(": ", begin);
    messages.push_back(
        {text.substr(begin, colon - begin), text.substr(colon + 2, end - colon - 2)});
    begin = end + 1;
  }
  try {
    return format.render(messages);
  } catch (const rw::ValueError&) {
    return "refused";
  }
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 2) return 2;
  const auto tokenizer = rw::read_tokenizer(arguments[1]);
  const std::string_view mode = count > 2 ? arguments[2] : "";
  if (mode == "save" && count > 3) {
    tokenizer.save(arguments[3]);
    return 0;
  }
  std::optional<rw::ChatFormat> chat;
  if (mode == "chat") chat.emplace(tokenizer);
  std::ios::sync_with_stdio(false);
  uint32_t size;
  std::string text;
  while (std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) {
    text.resize(size);
    std::cin.read(text.data(), size);
    if (chat) {
      put(render(*chat, text));
      continue;
    }
    const auto ids = tokenizer.encode(text, mode != "plain");
    put(ids);
    put(tokenizer.decode(ids));
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
