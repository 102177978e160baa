#include "tests/fuzz/target.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <unistd.h>

#include "backends/open.h"
#include "core/base/error.h"
#include "core/memory/default_device.h"

namespace rw::fuzz {

namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    const fs::path memory = "/dev/shm";  // much faster, if it exists
    const bool writable = access(memory.c_str(), W_OK) == 0;
    std::string name =
        ((writable ? memory : fs::temp_directory_path()) / "rewind-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no folder for scratch files");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

bool accepts(const Target& target, std::span<const uint8_t> input, std::string& error) {
  try {
    target.read(input);
    return true;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& refused) {
    error = refused.what();
    return false;
  }
}

void use_cpu() {
  static const auto device = set_default_device(open_backend("reference"));
}

fs::path scratch_file(std::string_view name) {
  static const Folder folder;
  return folder.path / name;
}

fs::path write_scratch(std::string_view name, std::span<const uint8_t> bytes) {
  fs::path path = scratch_file(name);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (file >= 0) close(file);
  if (!written) throw std::runtime_error("cannot write " + path.string());
  return path;
}

Bytes file_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Bytes join(std::span<const uint8_t> first, std::span<const uint8_t> second) {
  Bytes all = {static_cast<uint8_t>(first.size()), static_cast<uint8_t>(first.size() >> 8)};
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

std::pair<std::span<const uint8_t>, std::span<const uint8_t>> split(
    std::span<const uint8_t> input) {
  if (input.size() < 2) return {};
  const size_t wanted = input[0] | size_t{input[1]} << 8;
  input = input.subspan(2);
  const size_t length = std::min(wanted, input.size());
  return {input.first(length), input.subspan(length)};
}

}  // namespace rw::fuzz
