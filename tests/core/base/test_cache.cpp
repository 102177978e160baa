// The cache folder is trusted, so it must belong to this user alone.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "core/base/error.h"
#include "core/files/cache.h"
#include "data/base/files.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> some_bytes() {
  return std::as_bytes(std::span(std::string_view("contents")));
}

// Nothing of the cache is read, and nothing is written to it.
void check_unused(const char* why) {
  CHECK(read_cache("a").empty());
  CHECK(!read_cache_text("t").has_value());
  CHECK(!write_cache_text("t", "text"));
  const std::string error = message_of<FileError>([] { cache_directory(); });
  CAPTURE(error);
  CHECK(error.find(why) != std::string::npos);
}

mode_t permissions_of(const fs::path& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("cache: where nobody has said where, there is none") {
  const Env none("REWIND_CACHE", ""), no_xdg("XDG_CACHE_HOME", ""), no_home("HOME", "");
  check_unused("set HOME, or REWIND_CACHE");
  const Env relative("XDG_CACHE_HOME", "somewhere");
  check_unused("set HOME, or REWIND_CACHE");
}

TEST_CASE("cache: a folder that is made is nobody else's to read") {
  const TemporaryFolder folder;
  const Env home("HOME", folder.path.c_str()), none("REWIND_CACHE", ""),
      no_xdg("XDG_CACHE_HOME", "");
  const mode_t before = ::umask(0);
  const fs::path made = cache_directory();
  write_cache("a", some_bytes());
  ::umask(before);
  CHECK(made == folder / ".cache/rewind");
  CHECK(permissions_of(made) == 0700);
  CHECK(permissions_of(made.parent_path()) == 0700);
  CHECK(permissions_of(made / "a") == 0600);
  CHECK(read_cache("a").size() == some_bytes().size());
}

TEST_CASE("cache: a folder that others can write to, or that is not ours, is not used") {
  const TemporaryFolder top;
  const fs::path folder = top / "cache";
  const Env cache("REWIND_CACHE", folder.c_str());
  write_cache("a", some_bytes());
  REQUIRE(write_cache_text("t", "text"));
  CHECK(read_cache_text("t") == "text");
  for (const mode_t mode : {0770, 0707, 0777, 01777}) {
    REQUIRE(::chmod(folder.c_str(), mode) == 0);
    check_unused("others must not be able to write to it");
  }
  REQUIRE(::chmod(folder.c_str(), 0755) == 0);
  CHECK(read_cache_text("t") == "text");
  if (::geteuid() == 0) {  // only root can give things away
    REQUIRE(::chown(folder.c_str(), 12345, 12345) == 0);
    check_unused("must belong to user 0, it belongs to 12345");
    REQUIRE(::chown(folder.c_str(), 0, 0) == 0);
    // A link of another user leads wherever that user likes.
    fs::create_symlink(folder, top / "link");
    REQUIRE(::lchown((top / "link").c_str(), 12345, 12345) == 0);
    const Env linked("REWIND_CACHE", (top / "link").c_str());
    check_unused("not be a link of another user");
    REQUIRE(::lchown((top / "link").c_str(), 0, 0) == 0);
    CHECK(read_cache_text("t") == "text");  // a link of our own is allowed
  }
  const Env blocked("REWIND_CACHE", (folder / "t").c_str());
  check_unused("Not a directory");
}

TEST_CASE("cache: in the folder no links are followed, and no file of others is read") {
  const TemporaryFolder top;
  const fs::path folder = top / "cache", other = top / "other";
  const Env cache("REWIND_CACHE", folder.c_str());
  write_cache("a", some_bytes());
  fs::rename(folder / "a", other);
  const auto size = fs::file_size(other);
  fs::create_symlink(other, folder / "a");
  CHECK(read_cache("a").empty());
  REQUIRE(write_cache_text("a", "text"));  // in place of the link
  CHECK(fs::file_size(other) == size);
  CHECK(!fs::is_symlink(folder / "a"));
  CHECK(read_cache_text("a") == "text");
  REQUIRE(::chmod((folder / "a").c_str(), 0622) == 0);
  CHECK(!read_cache_text("a").has_value());
  fs::remove(folder / "a");
  REQUIRE(::mkfifo((folder / "a").c_str(), 0600) == 0);
  CHECK(!read_cache_text("a").has_value());
  CHECK(remove_cache("a"));
  CHECK(!remove_cache("a"));
  CHECK(fs::is_empty(folder));
}

TEST_SUITE_END();

}  // namespace rw::test
