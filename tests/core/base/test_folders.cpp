// Folders that are written as one thing: killed writers, failing disks, and mixtures.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <signal.h>
#include <unistd.h>

#include "core/files/cache.h"
#include "core/files/child_process.h"
#include "core/files/file.h"
#include "core/files/folder.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;
using FileSet = std::map<std::string, std::string>;

const FileSet old_set = {{"config", "old"}, {"index", "old, too"}, {"weights", "1234567"}},
              new_set = {{"config", "new"}, {"weights", "7654321, and more"}, {"words", "a b"}};

void put_file(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void write_set(const fs::path& folder, const FileSet& set) {
  AtomicFolder files(folder);
  for (const auto& [name, text] : set) put_file(files.staged() / name, text);
  files.commit([](const std::string& name) { return name == "index" || name == "words"; });
}

// Returns what a reader finds of either set. The folder must not be a mixture.
FileSet found_set(const fs::path& folder) {
  check_folder(folder);
  FileSet found;
  for (const char* name : {"config", "index", "weights", "words"})
    if (const fs::path path = path_in(folder, name); fs::exists(path)) found[name] = bytes_of(path);
  return found;
}

// A folder with the old set and a file of the user's.
void begin_folder(const fs::path& folder) {
  fs::remove_all(folder);
  write_set(folder, old_set);
  put_file(folder / "notes", "mine");
}

// The next writer goes on from whatever there is and leaves nothing beside its files.
void check_next_write(const fs::path& folder) {
  for (const FileSet& set : {old_set, new_set}) {
    write_set(folder, set);
    CHECK(found_set(folder) == set);
    for (const auto& [name, text] : set) CHECK(bytes_of(folder / name) == text);
    CHECK(entries(folder) == std::ssize(set) + 2);  // the list and the notes
  }
  CHECK(bytes_of(folder / "notes") == "mine");
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("folders: killed at any call, the old files or the new ones are whole") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary / "folder";
  int kills = 0, old_ones = 0;
  for (bool is_killed = true; is_killed; ++kills) {
    CAPTURE(kills);
    begin_folder(folder);
    const ChildEnd end = run_in_child(
        [&](const Send&) {
          file_calls::set_hook([at = kills](file_calls::Call, size_t&) mutable {
            if (at-- == 0) raise(SIGKILL);
            return 0;
          });
          write_set(folder, new_set);
        },
        [](const std::string&) {}, 60);
    is_killed = !end.failure.empty();
    const FileSet found = found_set(folder);
    CHECK((found == new_set || (found == old_set && is_killed)));
    old_ones += found == old_set;
    {
      const AtomicFolder unfinished(folder);
      put_file(unfinished.staged() / "config", "half");
    }
    CHECK(found_set(folder) == found);
    check_next_write(folder);
  }
  CHECK(old_ones > 10);
  CHECK(kills - old_ones > 10);
}

TEST_CASE("folders: a disk that fails leaves the old files or the new ones") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary / "folder";
  begin_folder(folder);
  int calls = 0;
  {
    const FileFaults counting;
    write_set(folder, new_set);
    calls = counting.calls();
  }
  CHECK(found_set(folder) == new_set);
  for (const bool for_good : {false, true})
    for (int at = 0; at < calls; ++at) {
      CAPTURE(for_good);
      CAPTURE(at);
      begin_folder(folder);
      const bool failed = fails([&] {
        const FileFaults faults({.at = at, .for_good = for_good});
        write_set(folder, new_set);
      });
      const FileSet found = found_set(folder);
      CHECK((found == new_set || (found == old_set && failed)));
      check_next_write(folder);
    }
  begin_folder(folder);
  for (uint64_t capacity = 0; capacity < 20; ++capacity)
    CHECK(fails([&] {
      const FileFaults full({.capacity = capacity});
      write_set(folder, new_set);
    }));
  CHECK(found_set(folder) == old_set);
  CHECK(entries(folder) == std::ssize(old_set) + 2);
}

TEST_CASE("folders: a mixture is refused, and so is a list that lies") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary / "folder", list = folder / "rewind-files.txt";
  begin_folder(folder);
  const std::string good = bytes_of(list);
  const auto message = [&] { return fault_of([&] { found_set(folder); }); };
  const auto refused = [&](const char* why) {
    const std::string got = message();
    CAPTURE(got);
    CHECK(got.find(why) != std::string::npos);
    begin_folder(folder);
  };
  for (const char* other : {"1234568", "123456", ""}) {
    put_file(folder / "weights", other);
    refused("must be the file that was written with the others");
  }
  fs::remove(folder / "config");
  refused("cannot open");
  for (const char* line :
       {"config", "0123 7", "0123 seven config", "xyz 7 config", "0123 7 ../config", "0123 7 a/b",
        "0123 7 ..", "from elsewhere", "from rewind-new-/..", "without ../config", "without ",
        "0123 99999999999999999999 config"}) {
    put_file(list, good + line + "\n");
    refused("must have lines of");
  }
  put_file(folder / "weights", "changed");
  fs::remove(list);  // as the message says
  CHECK(found_set(folder)["weights"] == "changed");
}

TEST_CASE("folders: what a writer finds there") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary / "folder";
  begin_folder(folder);
  fs::permissions(folder / "config", fs::perms(0600));
  fs::create_directory(folder / "rewind-new-killed");
  put_file(folder / "rewind-new-killed/config", "half");
  write_set(folder, new_set);
  struct stat status = {};
  REQUIRE(stat((folder / "config").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK_FALSE(fs::exists(folder / "rewind-new-killed"));
  fs::remove(folder / "words");
  fs::create_directory(folder / "words");
  CHECK(fault_of([&] { write_set(folder, new_set); }).find("must be a regular file") !=
        std::string::npos);
  CHECK(fault_of([&] { write_set(folder / "config", new_set); }).find("cannot make the folder") !=
        std::string::npos);
}

TEST_CASE("folders: a folder that cannot be made is named, with the system's reason") {
  const TemporaryFolder temporary;
  put_file(temporary / "file", "");
  for (const auto& message : {fault_of([&] { FolderLock(temporary / "file/below"); }),
                              fault_of([&] { put_file(temporary / "file/below/it", "text"); })}) {
    CAPTURE(message);
    CHECK(message.find("folder") != std::string::npos);
    CHECK(message.find("Not a directory") != std::string::npos);
  }
}

TEST_CASE("folders: without standard input, the first file that is opened has the number 0") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary / "folder", file = temporary / "file";
  begin_folder(folder);
  const Env cache("REWIND_CACHE", (temporary / "cache").c_str());
  const std::map<std::string, std::function<void()>> uses = {
      {"write", [&] { put_file(file, "text"); }},
      {"folder", [&] { write_set(folder, new_set); }},
      {"lock", [&] { const FolderLock lock(temporary / "lock"); }},
      {"write cache", [] { check(write_cache_text("name", "text"), "test", "not written"); }},
      {"read cache",
       [] { check(read_cache_text("name").value_or("") == "text", "test", "not read"); }},
      {"clear cache", [] { check(remove_cache("name"), "test", "not removed"); }},
      {"read", [&] {
         std::byte first{};
         InputFile(temporary / "notes").read(0, std::span(&first, 1));
         check(first == std::byte{'m'}, "test", "another text");
       }}};
  put_file(temporary / "notes", "mine");
  for (const auto& [name, use] : uses) {
    CAPTURE(name);
    write_cache_text("name", "text");
    std::string next;
    const ChildEnd end = run_in_child(
        [&](const Send& send) {
          ::close(0);
          use();
          send(std::to_string(::dup(2)));
        },
        [&](const std::string& line) { next = line; }, 60);
    CHECK(end.failure.empty());
    CHECK(next == "0");  // it has been closed again
  }
  CHECK(bytes_of(file) == "text");
  CHECK(found_set(folder) == new_set);
}

TEST_SUITE_END();

}  // namespace rw::test
