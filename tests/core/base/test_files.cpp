// Files that are written whole or not at all: with every call failing, through links, to pipes.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <signal.h>
#include <unistd.h>

#include "backends/open.h"
#include "data/base/files.h"
#include "io/formats/npy.h"
#include "io/formats/safetensors.h"
#include "io/models/bert.h"
#include "ops/ops.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::bytes_of;
using test::entries;
using test::fails;
using test::FileFaults;
using test::open_files;
using test::some_values;
namespace fs = std::filesystem;

namespace {

void write_in_halves(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.substr(0, text.size() / 2));
  file.write(text.substr(text.size() / 2));
  file.commit();
}

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

bool is_pipe(const fs::path& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }

 private:
  mode_t before_;
};

// Returns everything that writes a file, in two versions.
std::map<std::string, std::function<void(const fs::path&, int version)>> file_writers() {
  const auto values = [](int version) { return tensor(some_values(40, version), {8, 5}); };
  return {
      {"text",
       [](const fs::path& path, int v) { write_in_halves(path, std::string(999, "ab"[v])); }},
      {"write_file",
       [](const fs::path& path, int v) { write_file(path, std::string(99, "ab"[v])); }},
      {"npy", [=](const fs::path& path, int v) { save_npy(path, values(v)); }},
      {"safetensors",
       [=](const fs::path& path, int v) {
         write_safetensors(path, {{"a", values(v)}, {"b", values(3)}}, {{"k", "v"}}, {},
                           Checksums::crc32);
       }},
      {"bert", [](const fs::path& path,
                  int v) { write_bert_config(path, {.vocab_size = 100 + v}, "BertModel"); }},
  };
}

}  // namespace

TEST_CASE("files: whichever call fails, there is the old file or the new one, and nothing else" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  for (const auto& [name, writer] : file_writers()) {
    CAPTURE(name);
    for (const bool exists : {false, true}) {
      CAPTURE(exists);
      const TemporaryFolder folder;
      const fs::path path = folder.path / "file";
      writer(path, 1);
      const std::string whole = bytes_of(path);
      std::string old;
      const auto begin = [&] {
        fs::remove(path);
        if (exists) writer(path, 0);
        old = bytes_of(path);
      };
      begin();
      int calls = 0, failed = 0;
      {
        const FileFaults count;
        writer(path, 1);
        calls = count.calls();
      }
      REQUIRE(calls > 6);  // more calls than stat, open, write, sync, close, rename
      for (const int error : {EIO, ENOSPC, EACCES, EINTR}) {
        for (int at = 0; at < calls; ++at) {
          CAPTURE(error);
          CAPTURE(at);
          begin();
          const auto open_before = open_files();
          const bool threw = fails([&] {
            const FileFaults faults({.at = at, .error = error});
            writer(path, 1);
          });
          failed += threw;
          const std::string now = bytes_of(path);
          CHECK((now == whole || (threw && now == old)));
          CHECK(entries(folder.path) == (fs::exists(path) ? 1 : 0));
          CHECK(fs::exists(path) >= exists);
          CHECK(open_files() == open_before);
        }
      }
      CHECK(failed > 2 * calls);
    }
  }
}

TEST_CASE("files: what a killed writer left goes with the next one, a living writer's stays" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "file", neighbor = folder.path / "felt.partial-abcdef";
  const auto killed_at = [&](int number) {
    const pid_t child = fork();
    if (child == 0) {
      file_calls::set_hook([number, calls = 0](file_calls::Call, size_t&) mutable {
        if (calls++ == number) raise(SIGKILL);
        return 0;
      });
      write_in_halves(path, "new");
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status);
  };
  int left = 0, calls = 0;
  for (; killed_at(calls); ++calls) {
    left += entries(folder.path) > (fs::exists(path) ? 1 : 0);
    write_in_halves(path, "old");
    CHECK(entries(folder.path) == 1);
  }
  CHECK(calls > 10);
  CHECK(left > 4);

  write_in_halves(neighbor, "of another name, as long");
  write_in_halves(path, "old");
  CHECK(fs::remove(neighbor));
  const fs::path other = folder.path / "file.txt";
  AtomicFile alive(path), of_other(other);
  alive.write("alive");
  write_in_halves(path, "quick");
  CHECK(entries(folder.path) == 3);
  alive.commit();
  CHECK(bytes_of(path) == "alive");
  of_other.commit();
  CHECK(entries(folder.path) == 2);
}

TEST_CASE("files: a file system without locks loses nothing" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "file";
  std::ofstream(folder.path / "file.partial-abcdef") << "whose?";
  file_calls::set_hook([](file_calls::Call call, size_t&) {
    return call == file_calls::Call::lock ? EOPNOTSUPP : 0;
  });
  write_in_halves(path, "whole");
  file_calls::set_hook({});
  CHECK(bytes_of(path) == "whole");
  CHECK(entries(folder.path) == 2);
}

TEST_CASE("files: short writes make no difference, a full disk leaves the old file" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  for (const auto& [name, writer] : file_writers()) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const fs::path path = folder.path / "file";
    writer(path, 1);
    const std::string whole = bytes_of(path);
    for (const size_t most : {1, 7}) {
      fs::remove(path);
      const FileFaults faults({.most_bytes = most});
      writer(path, 1);
      CHECK(bytes_of(path) == whole);
    }
    writer(path, 0);
    const std::string old = bytes_of(path);
    for (uint64_t capacity = 0; capacity < whole.size(); ++capacity) {
      CAPTURE(capacity);
      try {
        const FileFaults faults({.capacity = capacity});
        writer(path, 1);
        FAIL("there was no room");
      } catch (const FileError& error) {
        CHECK(std::string(error.what()).find("No space left") != std::string::npos);
      }
      CHECK(bytes_of(path) == old);
      CHECK(entries(folder.path) == 1);
    }
  }
}

TEST_CASE("files: whichever call of a reader fails, it is a FileError" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "file";
  write_safetensors(path, {{"a", zeros({3})}});
  int calls = 0;
  {
    const FileFaults count;
    const SafetensorsFile file(path);
    calls = count.calls();
  }
  CHECK(calls == 4);  // open, stat, two to read the header
  const auto open_before = open_files();
  for (int at = 0; at < calls; ++at) {
    const FileFaults faults({.at = at});
    CHECK_THROWS_WITH_AS(SafetensorsFile{path}, doctest::Contains("Input/output error"), FileError);
  }
  CHECK(open_files() == open_before);
}

TEST_CASE("files: one that is cut short while it is open is a FileError" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "file";
  Tensor x = empty({100'000});
  write_safetensors(path, {{"first", full({100'000}, 1)}, {"last", full({100'000}, 2)}}, {}, {},
                    Checksums::crc32);
  const std::string tensors = bytes_of(path);
  {
    const SafetensorsFile file(path);
    file.verify();
    fs::resize_file(path, tensors.size() - 200'000);
    file.read("first", x);
    CHECK_THROWS_WITH_AS(file.read("last", x), doctest::Contains("cut short"), FileError);
    CHECK_THROWS_WITH_AS(file.verify(), doctest::Contains("cut short"), FileError);
  }
  save_npy(path, x);
  // A failure at any read of a reader.
  const std::pair<std::string, std::function<void()>> readers[] = {
      {tensors, [&] { SafetensorsFile(path).read("first", x); }},
      {bytes_of(path), [&] { load_npy(path); }}};
  for (const auto& [content, read] : readers) {
    int reads = 0, cut_at = -1;
    const auto run = [&] {
      std::ofstream(path, std::ios::binary) << content;
      reads = 0;
      file_calls::set_hook([&](file_calls::Call call, size_t&) {
        if (call == file_calls::Call::read && reads++ == cut_at) fs::resize_file(path, 0);
        return 0;
      });
      read();
    };
    run();
    const int all = reads;
    CHECK(all == 3);
    for (cut_at = 0; cut_at < all; ++cut_at)
      CHECK_THROWS_WITH_AS(run(), doctest::Contains("cut short"), FileError);
    file_calls::set_hook({});
  }
}

TEST_CASE("files: new ones have the mode of the umask, old ones keep theirs" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  for (const mode_t mask : {0077, 0022, 0002}) {
    const Umask scope(mask);
    const fs::path path = folder.path / std::to_string(mask);
    write_in_halves(path, "new");
    CHECK(mode_of(path) == (0666 & ~mask));
    write_file(folder.path / "data", "new");
    CHECK(mode_of(folder.path / "data") == (0666 & ~mask));
    fs::remove(folder.path / "data");
    for (const mode_t mode : {0600, 0640, 0666, 0755}) {
      chmod(path.c_str(), mode);
      write_in_halves(path, "newer");
      CHECK(mode_of(path) == mode);
      CHECK(bytes_of(path) == "newer");
    }
  }
}

TEST_CASE("files: links lead to what is written" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path / "there");
  const fs::path target = folder.path / "there/target", link = folder.path / "link";
  fs::create_symlink("there/target", link);
  fs::create_symlink("link", folder.path / "second");
  write_in_halves(folder.path / "second", "not there yet");
  CHECK(bytes_of(target) == "not there yet");
  write_in_halves(link, "replaced");
  CHECK(bytes_of(target) == "replaced");
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(folder.path / "second"));
  CHECK(entries(folder.path / "there") == 1);

  fs::create_symlink(fs::absolute(folder.path / "there"), folder.path / "folder");
  write_in_halves(folder.path / "folder/target", "through a folder");
  CHECK(bytes_of(target) == "through a folder");
  CHECK(fs::is_symlink(folder.path / "folder"));

  fs::create_symlink("b", folder.path / "a");
  fs::create_symlink("a", folder.path / "b");
  CHECK_THROWS_WITH_AS(write_in_halves(folder.path / "a", "x"), doctest::Contains("symbolic links"),
                       FileError);
  CHECK_THROWS_WITH_AS(write_in_halves(folder.path, "x"), doctest::Contains("Is a directory"),
                       FileError);
  CHECK_THROWS_WITH_AS(write_in_halves(folder.path / "new/", "x"),
                       doctest::Contains("Is a directory"), FileError);
  CHECK_THROWS_AS(write_in_halves("", "x"), FileError);
}

TEST_CASE("files: pipes and descriptors are written to, not replaced" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path / "pipe", link = folder.path / "link";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("pipe", link);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  for (const fs::path& path : {pipe, link}) {
    write_in_halves(path, "through it");
    char got[64] = {};
    CHECK(read(reader, got, sizeof got) == 10);
    CHECK(got == std::string("through it"));
    CHECK(is_pipe(pipe));
    CHECK(fs::is_symlink(link));
    CHECK(entries(folder.path) == 2);
  }
  for (int at = 0; at < 6; ++at) {  // stat, open, two writes, sync, close
    const FileFaults faults({.at = at});
    CHECK(fails([&] { write_in_halves(pipe, "text"); }));
  }
  close(reader);

  // Like the shell's >(command), and a file to which others write as well.
  const fs::path file = folder.path / "file";
  const int own = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  REQUIRE(::write(own, "before, ", 8) == 8);
  for (const char* name : {"/dev/fd/", "/proc/self/fd/"})
    write_in_halves(name + std::to_string(own), "this, ");
  fs::create_symlink("/dev/fd/" + std::to_string(own), folder.path / "named");
  write_in_halves(folder.path / "named", "that, ");
  REQUIRE(::write(own, "after", 5) == 5);
  CHECK(bytes_of(file) == "before, this, this, that, after");
  close(own);
  CHECK_THROWS_WITH_AS(write_in_halves("/dev/fd/" + std::to_string(own), "x"),
                       doctest::Contains("Bad file descriptor"), FileError);
  CHECK_THROWS_WITH_AS(
      write_safetensors("/dev/fd/" + std::to_string(own), {}, {}, {}, Checksums::crc32),
      doctest::Contains("Bad file descriptor"), FileError);
}

TEST_CASE("files: a pipe is no file to read a model from" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);  // that nobody writes to
  CHECK_THROWS_WITH_AS(SafetensorsFile{pipe}, doctest::Contains("must be a regular file"),
                       FileError);
  CHECK_THROWS_AS(load_npy(pipe), FileError);
  CHECK_THROWS_AS(read_bert_config(pipe), FileError);
  CHECK_THROWS_AS(read_file(pipe), FileError);
  CHECK_THROWS_AS(InputFile{folder.path}, FileError);
}

TEST_CASE("files: only those who ask for folders get them" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  write_in_halves(folder.path / "a/b/file", "x");
  CHECK(bytes_of(folder.path / "a/b/file") == "x");
  CHECK_THROWS_WITH_AS(save_npy(folder.path / "c/x.npy", zeros({2})),
                       doctest::Contains("No such file"), FileError);
  CHECK_FALSE(fs::exists(folder.path / "c"));
  check_can_write(folder.path / "d/file");
  check_can_write(folder.path / "d");
  CHECK(fs::is_empty(folder.path / "d"));
  CHECK_THROWS_WITH_AS(check_can_write("/proc/none/file"), doctest::Contains("[write]"), FileError);
}

TEST_CASE("files: one process at a time has a folder" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const fs::path shared = folder.path / "new";
  {
    const FolderLock lock(shared);
    CHECK_THROWS_WITH_AS(FolderLock{shared},
                         doctest::Contains(fmt::format("in use by process {};", getpid()).c_str()),
                         FileError);
    const FolderLock other(folder.path);
  }
  const FolderLock again(shared);
  std::ofstream(folder.path / "plain").flush();
  CHECK_THROWS_AS(FolderLock{folder.path / "plain"}, FileError);
  const FileFaults faults({.at = 1, .error = ENOLCK});
  CHECK_NOTHROW(FolderLock{shared});  // like a file system without locks
}
