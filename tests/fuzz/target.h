// The targets of fuzzing, one per reader of files. libfuzzer.cpp and driver.cpp feed the targets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rw::fuzz {

using Bytes = std::vector<uint8_t>;
using Input = std::span<const uint8_t>;

struct Target {
  const char* name;
  // Reads the input and checks the result. A faulty input must throw an rw::Error. Any other
  // exception is a bug of the reader, including OutOfMemory: a reader must not trust the sizes in
  // its input.
  void (*read)(std::span<const uint8_t> input);
  std::vector<Bytes> (*seeds)();             // inputs without faults
  std::vector<std::string_view> words = {};  // parts of inputs, for mutations
  bool refuses = true;                       // some inputs are faulty
  char cells = 0;  // the separator of a line's cells, if inputs are tables, else 0
};

// Words of files in JSON, for mutations.
inline std::vector<std::string_view> json_words() {
  return {"null",
          "true",
          "1e300",
          "-1",
          "0",
          "18446744073709551616",
          "9223372036854775807",
          "[",
          "]",
          "{",
          "}",
          "\"",
          ":",
          ",",
          "\\u0000",
          "1e999",
          "0.5"};
}

std::vector<Target> data_targets();       // data/
std::vector<Target> photo_targets();      // data/images/formats/
std::vector<Target> io_targets();         // io/, and device profiles
std::vector<Target> decoder_targets();    // language models in io/
std::vector<Target> tokenizer_targets();  // data/tokenizers
// Targets with bugs, which a fuzzer must find. all_targets() leaves them out.
std::vector<Target> planted_targets();

inline std::vector<Target> all_targets() {
  std::vector<Target> all = data_targets();
  for (auto* more : {photo_targets, io_targets, decoder_targets, tokenizer_targets})
    for (Target& target : more()) all.push_back(std::move(target));
  return all;
}

// Returns true if the input is accepted; else `error` says what is wrong with it. Throws if the
// reader has a bug.
bool accepts(const Target& target, std::span<const uint8_t> input, std::string& error);

// Checks, for targets, properties that everything that a reader accepts must have.
inline void expect(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}

// Makes the reference backend the default device, once.
void use_cpu();

// A file of this process, in a folder of its own that is removed at the end.
std::filesystem::path scratch_file(std::string_view name);
std::filesystem::path write_scratch(std::string_view name, std::span<const uint8_t> bytes);
inline Bytes to_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}
Bytes file_bytes(const std::filesystem::path& path);

// Inputs of two files: the first one's length in two bytes, then both.
Bytes join(std::span<const uint8_t> first, std::span<const uint8_t> second);
std::pair<std::span<const uint8_t>, std::span<const uint8_t>> split(std::span<const uint8_t> input);

}  // namespace rw::fuzz
