// Training that is killed again and again ends with the same bits. REWIND_KILL_ROUNDS=5000 for a
// long run of it.
#include <doctest/doctest.h>

#include <cstdlib>
#include <signal.h>

#include "core/autograd/tape.h"
#include "core/files/file_calls.h"
#include "data/base/random.h"
#include "tests/fixtures/child_case.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/snapshot_fixture.h"

using namespace rw;
using test::bytes_of;
using test::Env;
using test::status_of_case;
using test::total_steps;
namespace fs = std::filesystem;

namespace {

constexpr const char* folder_variable = "REWIND_TEST_CHECKPOINTS";
constexpr const char* kill_variable = "REWIND_TEST_KILL";
constexpr const char* kind_variable = "REWIND_TEST_KIND";

// The kinds of training: windows of two micro-batches with a snapshot after each window, and
// windows of four with snapshots inside of them as well, whose sums are kept in one way or another.
enum class Kind { updates, windows, judged_windows, narrow_windows };
constexpr int kinds = 4;

void train_until_killed(Kind kind, const fs::path& folder) {
  test::Run run(DType::f32, kind == Kind::updates ? 2 : 4);
  if (kind == Kind::judged_windows)
    run.optimizer().set_overflow(Accumulate::Overflow::voids_micro_batch);
  if (kind == Kind::narrow_windows) run.optimizer().set_buffer(DType::bf16, true);
  test::train_with_snapshots(run, folder, kind == Kind::updates ? 2 : 3);
}

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

// The process dies when this many ops have begun, in forward or in backward: inside of a window and
// of a step.
class DeathAtOp : public Tape::Observer {
 public:
  explicit DeathAtOp(int ops) : left_(ops) {}
  void before_forward(const Op&, std::span<const Tensor>) override { count(); }
  void before_vjp(int64_t, const Record&, std::span<const Tensor>) override { count(); }

 private:
  void count() {
    if (--left_ == 0) raise(SIGKILL);
  }
  int left_;
};

// Numbers below 0 are of ops, others of file calls; 0: it lives.
constexpr int no_kill = 0;

// The exit status, or -SIGNAL, of the test case below in a process of its own.
int train_elsewhere(const fs::path& folder, Kind kind, int kill_at = no_kill) {
  const Env env_folder(folder_variable, folder.c_str()),
      env_kill(kill_variable, std::to_string(kill_at).c_str()),
      env_kind(kind_variable, std::to_string(static_cast<int>(kind)).c_str());
  return status_of_case("snapshot: child process");
}

int kill_rounds(Kind kind) {
  if (const char* wanted = std::getenv("REWIND_KILL_ROUNDS")) return std::atoi(wanted);
  return kind == Kind::updates ? 40 : 12;
}

}  // namespace

TEST_CASE("snapshot: child process" * doctest::skip()) {
  const char* folder = std::getenv(folder_variable);
  if (folder == nullptr) return;  // only train_elsewhere() runs this
  set_default_device(open_backend("cpu"));
  const int kill_at = std::atoi(std::getenv(kill_variable));
  DeathAtOp death(-kill_at);
  if (kill_at > 0) die_at_call(kill_at);
  if (kill_at < 0) Tape::current()->add_observer(death);
  train_until_killed(static_cast<Kind>(std::atoi(std::getenv(kind_variable))), folder);
  Tape::current()->remove_observer(death);
}

TEST_CASE("snapshot: killed at any moment, training ends with the same bits" *
          doctest::test_suite("programs")) {
  for (int number = 0; number < kinds; ++number) {
    CAPTURE(number);
    const auto kind = static_cast<Kind>(number);
    const TemporaryFolder folder;
    const auto last = fmt::format("step-{:012}.safetensors", total_steps);
    REQUIRE(train_elsewhere(folder.path / "whole", kind) == 0);
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
    for (int round = 0; round < kill_rounds(kind); ++round) {
      CAPTURE(round);
      // A save has about 40 file calls, a micro-batch about 30 ops in forward and backward.
      const auto at = static_cast<int>(1 + random.below(120));
      const bool is_at_op = kind != Kind::updates && round % 3 != 2;
      const int status = train_elsewhere(killed, kind, is_at_op ? -at * 3 : at);
      if (status == 0) check_end();
      CHECK((status == 0 || status == -SIGKILL));
      kills += status == -SIGKILL;
    }
    CHECK(kills > 0);
    REQUIRE(train_elsewhere(killed, kind) == 0);
    check_end();
  }
}
