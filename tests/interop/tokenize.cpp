// Tokenizes for compare_tokenizers.py. Usage: tokenize TOKENIZER [plain] < TEXTS > RESULTS. A text
// is a number of bytes (32 bits) and these; a result the number of its tokens, their ids, and the
// decoded text in the form of a text. With `plain`, special tokens in texts are text.
#include <cstdio>
#include <iostream>
#include <string>

#include "data/tokenizers/bpe_tokenizer.h"

namespace {

template <class Values>
void put(const Values& values) {
  const auto size = static_cast<uint32_t>(values.size());
  std::cout.write(reinterpret_cast<const char*>(&size), sizeof(size));
  std::cout.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(size * sizeof(values[0])));
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 2) return 2;
  const auto tokenizer = rw::BpeTokenizer::load(arguments[1]);
  std::ios::sync_with_stdio(false);
  uint32_t size;
  std::string text;
  while (std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) {
    text.resize(size);
    std::cin.read(text.data(), size);
    const auto ids = tokenizer.encode(text, count == 2);
    put(ids);
    put(tokenizer.decode(ids));
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
