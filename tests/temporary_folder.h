// A folder of its own for each test, removed at the end.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <stdlib.h>
#include <string>

namespace rw {

struct TemporaryFolder {
  std::string path = (std::filesystem::temp_directory_path() / "rewind-test-XXXXXX").string();
  TemporaryFolder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path operator/(const char* name) const {
    return std::filesystem::path(path) / name;
  }
};

}  // namespace rw
