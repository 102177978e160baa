// Snapshots of ranks that keep optimizer states in parts: whoever saved, anyone goes on with the
// same bits, and a snapshot is whole or not there. REWIND_KILL_ROUNDS=500 for a long run of kills.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <signal.h>

#include "core/files/file_calls.h"
#include "data/base/random.h"
#include "dist/step_ranks.h"
#include "dist/world/thread_ranks.h"
#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/autocast.h"
#include "optim/adam.h"
#include "tests/fixtures/child_case.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/rank_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::bytes_of;
using test::contains;
using test::Env;
using test::fails;
using test::message_of;
using test::of_whole;
using test::status_of_case;
using test::Values;
namespace fs = std::filesystem;

namespace {

constexpr int64_t window = 6, total = 4 * window;  // micro-batches of all ranks together
constexpr const char* rank_folder_variable = "REWIND_TEST_RANK_SNAPSHOTS";
constexpr const char* rank_kill_variable = "REWIND_TEST_RANK_KILL";

using Bits = std::map<std::string, Values>;

SnapshotRanks saving(Communicator& ranks) {
  return {ranks.rank(), ranks.size(),
          [&ranks](const std::string& own) { return gather_texts(ranks, own); }};
}

struct RankSetup {
  int ranks = 1;
  std::string shard = "none";  // one of sharding_words()
  bool is_half = false;        // parameters of 16 bits, which have masters
};

// One rank's model, with running statistics, dropout, clipping and a loss scale.
class RankRun {
 public:
  RankRun(Communicator& ranks, const RankSetup& how)
      : ranks_(ranks),
        model_(make_model(how.is_half)),
        optimizer_(AdamW(groups(*model_, ranks, how), {.lr = 0.01f}),
                   static_cast<uint32_t>(window / ranks.size())) {
    optimizer_.set_max_norm(1);
    if (how.is_half) optimizer_.set_scaler(LossScaler::dynamic(0x1p12f, 2, 0.5f, 3));
    parallel_.emplace(optimizer_, ranks);
  }

  void run_to(int64_t end) {
    for (; position.step < end; position.step += ranks_.size()) {
      const int64_t own = position.step + ranks_.rank();
      default_generator().begin_stream(static_cast<uint64_t>(own));
      const DType dtype = model_->parameters()[0].dtype();
      const Tensor x = cast(tensor(test::some_values(4 * 6, static_cast<int>(own)), {4, 6}), dtype);
      optimizer_.backward(mean(square((*model_)(x))));
      optimizer_.step();
      optimizer_.zero_grad();
    }
  }

  TrainingState state() { return {.model = *model_, .optimizer = optimizer_}; }
  // To read and to write: on all ranks together.
  DataParallel::Gathered gather() { return parallel_->gather_parameters(); }
  Bits bits() {
    const auto whole = gather();
    Bits all;
    for (const auto& [name, t] : state_dict(*model_)) all[name] = t.to_vector();
    for (const auto& [name, t] : optimizer_.state()) all[name] = t.to_vector();
    return all;
  }

  TrainingPosition position;

 private:
  static std::unique_ptr<Sequential> make_model(bool is_half) {
    manual_seed(5);
    auto model = std::make_unique<Sequential>();
    model->emplace<Linear>(6, 900);  // so many that ranks divide two of the weights
    model->emplace<Dropout>(0.3f);
    model->emplace<Linear>(900, 16);
    model->emplace<Linear>(16, 2);
    if (is_half) model->half();
    return model;
  }
  static std::vector<ParameterGroup> groups(const Sequential& model, Communicator& ranks,
                                            const RankSetup& how) {
    return StepRanks({.rank = ranks.rank(), .ranks = ranks.size(), .shard = how.shard}, ranks)
        .placed(model.parameters());
  }

  Communicator& ranks_;
  const std::unique_ptr<Sequential> model_;
  Accumulate optimizer_;
  std::optional<DataParallel> parallel_;
};

// Goes on from the newest snapshot of the folder up to `end`, with one after each update.
void train_ranks(const fs::path& folder, const RankSetup& how, int64_t end,
                 std::vector<Bits>* bits = nullptr) {
  if (bits) bits->resize(static_cast<size_t>(how.ranks));
  run_ranks(how.ranks, [&](Communicator& ranks) {
    RankRun run(ranks, how);
    SnapshotDirectory snapshots(folder, 2, saving(ranks));
    {
      const auto whole = run.gather();
      if (const auto found = snapshots.load_latest(run.state())) run.position = found->position;
    }
    while (run.position.step < end) {
      run.run_to(run.position.step + window);
      const auto whole = run.gather();
      snapshots.save(run.state(), run.position);
    }
    if (bits) (*bits)[static_cast<size_t>(ranks.rank())] = run.bits();
  });
}

// Returns the bits of one process after so many micro-batches, without any snapshot.
Bits whole_bits(int64_t end, bool is_half = false) {
  Bits bits;
  run_ranks(1, [&](Communicator& alone) {
    RankRun run(alone, {.is_half = is_half});
    run.run_to(end);
    bits = run.bits();
  });
  return bits;
}

// Loads a folder into one process.
LoadedSnapshot loaded_from(const fs::path& folder, Bits& bits, bool is_half = false) {
  std::optional<LoadedSnapshot> loaded;
  run_ranks(1, [&](Communicator& alone) {
    RankRun run(alone, {.is_half = is_half});
    loaded = SnapshotDirectory(folder, 2).load_latest(run.state());
    bits = run.bits();
  });
  REQUIRE(loaded.has_value());
  return *loaded;
}

std::vector<fs::path> parts_in(const fs::path& folder) {
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (contains(entry.path().filename().string(), ".part-")) parts.push_back(entry.path());
  std::ranges::sort(parts);
  return parts;
}

// File calls of all threads in one count. `ask` decides about each.
class SharedHook {
 public:
  explicit SharedHook(std::function<int(int number, size_t& bytes)> ask = {}) {
    file_calls::set_hook([this, ask = std::move(ask)](file_calls::Call, size_t& bytes) {
      const std::lock_guard lock(mutex_);
      return ask ? ask(calls_++, bytes) : (++calls_, 0);
    });
  }
  ~SharedHook() { file_calls::set_hook({}); }
  int calls() const { return calls_; }

 private:
  std::mutex mutex_;
  int calls_ = 0;
};

}  // namespace

TEST_CASE("snapshot of ranks: any number of them goes on from any other, with the same bits" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const bool is_half : {false, true}) {
    const Bits whole = whole_bits(total, is_half);
    const auto check = [&](RankSetup first, RankSetup then) {
      CAPTURE(is_half);
      INFO(first.ranks, ", ", first.shard, " in parts, then ", then.ranks, ", ", then.shard);
      first.is_half = then.is_half = is_half;
      const TemporaryFolder folder;
      train_ranks(folder.path, first, total / 2);
      const size_t parts = first.shard != "none" ? 2 * static_cast<size_t>(first.ranks - 1) : 0;
      CHECK(parts_in(folder.path).size() == parts);  // of the two that are kept
      std::vector<Bits> bits;
      train_ranks(folder.path, then, total, &bits);
      size_t states = 0, divided = 0;
      for (const Bits& rank : bits)
        for (const auto& [name, values] : rank) {
          CAPTURE(name);
          CHECK(values == of_whole(whole, name));
          if (name.starts_with("exp_avg")) states += values.size();
          divided += whole_name(name) != name;
        }
      const size_t copies = then.shard != "none" ? 1 : static_cast<size_t>(then.ranks);
      CHECK(states == copies * 2 * (7 * 900 + 901 * 16 + 17 * 2));  // two of each element
      CHECK((divided > 0) == (then.shard != "none"));
    };
    check({3, "states"}, {1, "none"});
    check({1, "none"}, {3, "states"});
    check({3, "states"}, {2, "parameters"});
    check({2, "parameters"}, {3, "none"});
    check({6, "states"}, {6, "states"});
  }
}

TEST_CASE(
    "snapshot of ranks: whichever call fails on whichever rank, all see it and a whole one "
    "is there" *
    doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path kept = folder.path / "kept", used = folder.path / "used";
  const RankSetup how{3, "states"};
  train_ranks(kept, how, window);
  const std::vector<Bits> bits = {whole_bits(window), whole_bits(2 * window)};
  const auto begin = [&] {
    fs::remove_all(used);
    fs::copy(kept, used);
  };
  begin();
  int calls = 0;
  {
    const SharedHook count;
    train_ranks(used, how, 2 * window);
    calls = count.calls();
  }
  CHECK(calls > 80);
  int old = 0, fresh = 0;
  for (const bool for_good : {false, true})
    for (int at = for_good; at < calls; at += 2) {
      CAPTURE(for_good);
      CAPTURE(at);
      begin();
      const bool threw = fails([&] {
        const SharedHook faults([&](int number, size_t&) {
          return number == at || (for_good && number > at) ? EIO : 0;
        });
        train_ranks(used, how, 2 * window);
      });
      Bits found;
      const LoadedSnapshot loaded = loaded_from(used, found);
      CHECK(loaded.damaged.empty());
      CHECK((loaded.position.step == 2 * window || (loaded.position.step == window && threw)));
      CHECK(found == bits[static_cast<size_t>(loaded.position.step / window - 1)]);
      (loaded.position.step == window ? old : fresh) += 1;
      // A part has its index, once the folder has been locked again.
      for (const fs::path& part : parts_in(used))
        CHECK(fs::exists(part.string().substr(0, part.string().find(".safetensors") + 12)));
      for (const auto& entry : fs::directory_iterator(used))
        CHECK_FALSE(AtomicFile::is_temporary(entry.path()));
    }
  CHECK(old > calls / 2);
  CHECK(fresh > 2);
}

TEST_CASE("snapshot of ranks: child process" * doctest::skip()) {
  const char* folder = std::getenv(rank_folder_variable);
  if (folder == nullptr) return;  // only the next case runs this
  set_default_device(open_backend("reference"));
  const int kill_at = std::atoi(std::getenv(rank_kill_variable));
  // It dies at this file call of any rank; of the write before, half comes through.
  const SharedHook death([&](int number, size_t& bytes) {
    if (number == kill_at) raise(SIGKILL);
    if (number == kill_at - 1) bytes -= bytes / 2;
    return 0;
  });
  train_ranks(folder, {3, "states"}, total);
}

TEST_CASE("snapshot of ranks: killed at any moment, training ends with the same bits" *
          doctest::test_suite("programs")) {
  const TemporaryFolder folder;
  const auto train_elsewhere = [&](int kill_at) {
    const Env env_folder(rank_folder_variable, folder.path.c_str()),
        env_kill(rank_kill_variable, std::to_string(kill_at).c_str());
    return status_of_case("snapshot of ranks: child process");
  };
  set_default_device(open_backend("reference"));
  const Bits whole = whole_bits(total);
  const auto check_end = [&] {
    Bits found;
    CHECK(loaded_from(folder.path, found).position.step == total);
    CHECK(found == whole);
    // Two snapshots of three files, and the lock; a third one where the run before was killed
    // between its last index and what goes then, so that nothing was left to do.
    const size_t entries = test::entries(folder.path);
    CHECK((entries == 2 * 3 + 1 || entries == 3 * 3 + 1));
    for (const auto& entry : fs::directory_iterator(folder.path)) fs::remove(entry.path());
  };
  const char* wanted = std::getenv("REWIND_KILL_ROUNDS");
  DataRandom random(7);
  int kills = 0;
  for (int round = 0; round < (wanted ? std::atoi(wanted) : 25); ++round) {
    CAPTURE(round);
    const int status = train_elsewhere(static_cast<int>(1 + random.below(300)));
    CHECK((status == 0 || status == -SIGKILL));
    kills += status == -SIGKILL;
    if (status == 0) check_end();
  }
  CHECK(kills > 0);
  REQUIRE(train_elsewhere(-1) == 0);
  check_end();
}

TEST_CASE("snapshot of ranks: parts that are damaged, missing, foreign or left behind" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path kept = folder.path / "kept", used = folder.path / "used";
  train_ranks(kept, {3, "states"}, 2 * window);
  const std::vector<fs::path> names = parts_in(kept);
  REQUIRE(names.size() == 4);
  const auto begin = [&](size_t part) {
    fs::remove_all(used);
    fs::copy(kept, used);
    return used / names[part].filename();
  };
  const auto check_older = [&](const char* why) {
    Bits found;
    const LoadedSnapshot loaded = loaded_from(used, found);
    CHECK(loaded.position.step == window);
    REQUIRE(loaded.damaged.size() == 1);
    CHECK(contains(loaded.damaged[0], why));
    CHECK(contains(loaded.damaged[0], ".part-1-of-2"));
  };
  const fs::path newest = begin(2);
  std::string bytes = bytes_of(newest);
  for (const size_t at : {size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    bytes[at] ^= 1;
    std::ofstream(newest, std::ios::binary) << bytes;
    check_older("");
    bytes[at] ^= 1;
  }
  fs::remove(begin(2));
  check_older("cannot open");
  fs::copy(kept / names[0].filename(), begin(2), fs::copy_options::overwrite_existing);
  check_older("must be part 1 of");

  // The parts of an index that nobody can read stay; those without an index, and those of others,
  // go.
  begin(0);
  const fs::path index = used / "step-000000000012.safetensors";
  fs::resize_file(index, 100);
  const fs::path left = used / "step-000000000018.safetensors.0123456789abcdef.part-1-of-2",
                 other = used / "step-000000000006.safetensors.0123456789abcdef.part-1-of-2",
                 mine = used / "my.safetensors.0123456789abcdef.part-1-of-2";
  for (const fs::path& path : {left, other, mine}) std::ofstream(path) << "half";
  Bits found;
  CHECK(loaded_from(used, found).position.step == window);
  CHECK(parts_in(used).size() == 5);
  CHECK(fs::exists(mine));
  CHECK_FALSE(fs::exists(left));
  CHECK_FALSE(fs::exists(other));
  train_ranks(used, {2, "states"}, 2 * window);  // the damaged one is replaced
  CHECK(loaded_from(used, found).position.step == 2 * window);
  CHECK(parts_in(used).size() == 2 + 1 + 1);
  run_ranks(2, [&](Communicator& ranks) {
    SnapshotDirectory snapshots(used, 2, saving(ranks));
    snapshots.clear();
  });
  CHECK(parts_in(used) == std::vector<fs::path>{mine});
}

TEST_CASE("snapshot of ranks: a file of its own is an index and a part of each further rank" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path index = folder.path / "mine";
  run_ranks(3, [&](Communicator& ranks) {
    RankRun run(ranks, {3, "states"});
    run.run_to(window);
    const auto whole = run.gather();
    save_snapshot(index, run.state(), run.position, saving(ranks));
  });
  CHECK(parts_in(folder.path).size() == 2);
  CHECK(test::entries(folder.path) == 3);
  run_ranks(1, [&](Communicator& alone) {
    RankRun run(alone, {});
    CHECK(load_snapshot(index, run.state()).step == window);
    CHECK(run.bits() == whole_bits(window));
  });
}

TEST_CASE("snapshot of ranks: what is not of them is refused" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto message = [&](const std::function<void(Communicator&, RankRun&)>& body) {
    return message_of<Error>([&] {
      run_ranks(2, [&](Communicator& ranks) {
        RankRun run(ranks, {2, "states"});
        body(ranks, run);
      });
    });
  };
  CHECK(contains(message([&](Communicator&, RankRun& run) {
                   save_snapshot(folder.path / "alone", run.state(), {});
                 }),
                 "must be saved by all of them (SnapshotRanks), got rank 0 of 1"));
  CHECK(contains(message([&](Communicator& ranks, RankRun& run) {
                   const auto refuse = [&](const TrainingPosition&) {
                     if (ranks.rank() == 1) fail<FileError>("test", "not from there");
                   };
                   SnapshotDirectory snapshots(folder.path / "both", 2, saving(ranks));
                   snapshots.save(run.state(), run.position);
                   (void)snapshots.load_latest(run.state(), refuse);
                 }),
                 "not from there"));
  const SnapshotDirectory snapshots(folder.path / "both");
  CHECK(snapshots.list().size() == 1);
  fs::remove(parts_in(folder.path / "both")[0]);
  CHECK(snapshots.list().empty());
}
