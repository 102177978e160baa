// Training that is killed again and again ends with the same bits. REWIND_KILL_ROUNDS=5000 for a
// long run of it.
#include <doctest/doctest.h>

#include <cstdlib>
#include <signal.h>

#include "rewind/data/random.h"
#include "rewind/io/file_calls.h"
#include "tests/child_case.h"
#include "tests/env.h"
#include "tests/file_faults.h"
#include "tests/file_fixture.h"
#include "tests/snapshot_fixture.h"

using namespace rw;
using test::bytes_of;
using test::Env;
using test::on_each_device;
using test::status_of_case;
using test::TemporaryFolder;
using test::total_steps;
namespace fs = std::filesystem;

namespace {

constexpr const char* folder_variable = "REWIND_TEST_CHECKPOINTS";
constexpr const char* device_variable = "REWIND_TEST_DEVICE";
constexpr const char* kill_variable = "REWIND_TEST_KILL";

// The process dies at its file call of this number, reads aside. Files change in the other calls
// only, so these are all moments that differ; of the last write before, half comes through.
void die_at_call(int number) {
  file_calls::set_hook([number, calls = 0](file_calls::Call call, size_t& bytes) mutable {
    if (call == file_calls::Call::read) return 0;
    if (++calls == number) raise(SIGKILL);
    if (calls == number - 1) bytes -= bytes / 2;
    return 0;
  });
}

// The exit status, or -SIGNAL, of the test case below in a process of its own.
int train_elsewhere(const fs::path& folder, const std::string& device, int kill_at = 0) {
  const Env env_folder(folder_variable, folder.c_str()),
      env_device(device_variable, device.c_str()),
      env_kill(kill_variable, std::to_string(kill_at).c_str());
  return status_of_case("snapshot: child process");
}

int rounds(const std::string& device) {
  if (const char* wanted = std::getenv("REWIND_KILL_ROUNDS")) return std::atoi(wanted);
  return device == "cpu" ? 40 : 4;  // drivers take a while to start
}

}  // namespace

TEST_CASE("snapshot: child process" * doctest::skip()) {
  const char* folder = std::getenv(folder_variable);
  if (folder == nullptr) return;  // only train_elsewhere() runs this
  set_default_device(open_backend(std::getenv(device_variable)));
  die_at_call(std::atoi(std::getenv(kill_variable)));
  test::train_with_snapshots(folder);
}

TEST_CASE("snapshot: killed at any moment, training ends with the same bits" *
          doctest::test_suite("programs")) {
  on_each_device([] {
    const std::string device = default_device()->info().backend;
    const TemporaryFolder folder;
    REQUIRE(train_elsewhere(folder.path / "whole", device) == 0);
    const auto last = fmt::format("step-{:012}.safetensors", total_steps);
    const std::string whole = bytes_of(folder.path / "whole" / last);

    DataRandom random(3);
    const fs::path killed = folder.path / "killed";
    const auto check_end = [&] {
      CHECK(bytes_of(killed / last) == whole);
      // The newest two are kept, and the lock; nothing else.
      CHECK(test::entries(killed) == 3);
      fs::remove_all(killed);
    };
    int kills = 0;
    for (int round = 0; round < rounds(device); ++round) {
      CAPTURE(round);
      const auto kill_at = static_cast<int>(1 + random.below(120));  // a save has about 40 calls
      const int status = train_elsewhere(killed, device, kill_at);
      if (status == 0) check_end();
      CHECK((status == 0 || status == -SIGKILL));
      kills += status == -SIGKILL;
    }
    CHECK(kills > 0);
    REQUIRE(train_elsewhere(killed, device) == 0);
    check_end();
  });
}
