// Training that goes on bit for bit after a snapshot, and snapshots that are damaged.
#include <doctest/doctest.h>

#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/snapshot_fixture.h"

using namespace rw;
using test::bytes_of;
using test::fails;
using test::FileFaults;
using test::on_each_device;
using test::Run;
using test::total_steps;
namespace fs = std::filesystem;

TEST_CASE("snapshot: training goes on bit for bit in a new model") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      CAPTURE(name(dtype));
      const TemporaryFolder folder;
      const fs::path path = folder.path / "half";
      std::vector<float> losses;
      Run whole(dtype);
      for (int i = 0; i < total_steps; ++i) losses.push_back(whole.step());

      {
        Run first(dtype);
        for (int i = 0; i < total_steps / 2; ++i) first.step();
        first.position.json = R"({"note": "half way"})";
        save_snapshot(path, first.state(), first.position);
      }
      Run second(dtype);
      second.step();  // whatever it was before does not matter
      second.step();
      second.position = load_snapshot(path, second.state());
      CHECK(second.position.step == total_steps / 2);
      CHECK(second.position.json == R"({"note": "half way"})");
      std::vector<float> resumed;
      for (int i = 0; i < total_steps / 2; ++i) resumed.push_back(second.step());
      CHECK(resumed == std::vector<float>(losses.begin() + total_steps / 2, losses.end()));
      CHECK(second.bits() == whole.bits());
      if (dtype == DType::f16) CHECK(whole.skipped() > 0);  // the loss scale moved
    }
  });
}

TEST_CASE("snapshot: the newest whole file counts, others stay out of the way" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  SnapshotDirectory snapshots(folder.path, 3);
  Run run(DType::f32);
  CHECK_FALSE(snapshots.load_latest(run.state()).has_value());
  CHECK_FALSE(SnapshotDirectory(folder.path / "none").load_latest(run.state()).has_value());
  for (int i = 0; i < 10; ++i) {
    run.step();
    if (i % 2 == 1) snapshots.save(run.state(), run.position);
  }
  REQUIRE(snapshots.list().size() == 3);
  CHECK(snapshots.list().back().filename() == "step-000000000010.safetensors");
  fs::resize_file(snapshots.list().back(), 5000);  // a damaged disk
  const auto loaded = snapshots.load_latest(run.state());
  REQUIRE(loaded.has_value());
  CHECK(loaded->position.step == 8);
  CHECK(loaded->file == folder.path / "step-000000000008.safetensors");
  REQUIRE(loaded->damaged.size() == 1);
  CHECK(loaded->damaged[0].find("step-000000000010") != std::string::npos);
  run.position = loaded->position;

  // The next save removes files that a killed writer left, and damaged ones; other files stay.
  std::ofstream(folder.path / "step-000000000012.safetensors.partial-aB3dE6") << "half";
  std::ofstream(folder.path / "notes.txt") << "mine";
  snapshots.save(run.state(), run.position);
  CHECK_FALSE(fs::exists(folder.path / "step-000000000012.safetensors.partial-aB3dE6"));
  CHECK_FALSE(fs::exists(folder.path / "step-000000000010.safetensors"));
  CHECK(fs::exists(folder.path / "notes.txt"));

  run.step();
  snapshots.save(run.state(), run.position);  // inside a window
  CHECK_THROWS_AS(SnapshotDirectory(folder.path, 0), ValueError);
  run.step();
  CHECK_THROWS_AS(snapshots.save(run.state(), {.step = 20, .epoch = -1}), ValueError);
  CHECK_THROWS_AS(snapshots.save(run.state(), {.step = 20, .json = "\xff"}), ValueError);
}

TEST_CASE("snapshot: a killed writer's file goes when training goes on" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path left = folder.path / "step-000000000012.safetensors.partial-aB3dE6";
  std::ofstream(left) << "half";
  Run run(DType::f32);
  CHECK_FALSE(SnapshotDirectory(folder.path).load_latest(run.state()).has_value());
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("snapshot: later snapshots are another run's" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Run run(DType::f32);
  {
    SnapshotDirectory snapshots(folder.path, 1);
    run.step();
    run.step();
    snapshots.save(run.state(), {.step = 20});
    // A second holder of the folder, here or elsewhere.
    SnapshotDirectory second(folder.path);
    CHECK_THROWS_WITH_AS(second.save(run.state(), {.step = 30}), doctest::Contains("is in use by"),
                         FileError);
    CHECK_THROWS_WITH_AS((void)second.load_latest(run.state()), doctest::Contains("is in use by"),
                         FileError);
  }
  SnapshotDirectory snapshots(folder.path, 1);
  CHECK_THROWS_WITH_AS(snapshots.save(run.state(), {.step = 4}),
                       doctest::Contains("is of a later step than 4"), FileError);
  CHECK(snapshots.list().size() == 1);
  snapshots.clear();
  CHECK(snapshots.list().empty());
  snapshots.save(run.state(), {.step = 4});
  CHECK(snapshots.list().size() == 1);
}

TEST_CASE("snapshot: whichever byte is damaged, the older one is taken" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  std::vector<std::pair<int64_t, decltype(std::declval<Run>().bits())>> saved;
  Run run(DType::f32);
  {
    SnapshotDirectory snapshots(folder.path, 2);
    for (int i = 0; i < 2; ++i) {
      run.step();
      run.step();
      snapshots.save(run.state(), run.position);
      saved.emplace_back(run.position.step, run.bits());
    }
  }
  const fs::path newest = SnapshotDirectory(folder.path).list().back();
  const fs::path older = SnapshotDirectory(folder.path).list().front();
  const std::string whole = bytes_of(newest);
  const auto write = [](const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };
  const auto loads = [&](int64_t step, size_t damaged) {
    SnapshotDirectory snapshots(folder.path);
    const auto loaded = snapshots.load_latest(run.state());
    REQUIRE(loaded.has_value());
    CHECK(loaded->position.step == step);
    CHECK(loaded->damaged.size() == damaged);
    CHECK(run.bits() == saved[step == saved[1].first].second);
  };
  loads(4, 0);
  // Every byte of the header, its blanks aside, and some of every tensor.
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  const size_t end = whole.find_last_not_of(' ', 8 + header - 1);
  for (size_t at = 0; at < whole.size(); at += at <= end ? 1 : 13) {
    if (at > end && at < 8 + header) continue;
    CAPTURE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 7);
    write(newest, damaged);
    loads(2, 1);
  }
  for (size_t size = 0; size < whole.size(); size += 101) {
    write(newest, whole.substr(0, size));
    loads(2, 1);
  }
  write(newest, bytes_of(older));  // whole, but of another step
  loads(2, 1);
  write(newest, whole);
  loads(4, 0);

  // When none is whole, training does not start from zero by itself.
  write(newest, whole.substr(0, 1000));
  std::string damaged = bytes_of(older);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write(older, damaged);
  SnapshotDirectory snapshots(folder.path);
  const auto before = run.bits();
  CHECK_THROWS_WITH_AS((void)snapshots.load_latest(run.state()),
                       doctest::Contains("none of the 2 snapshots"), FileError);
  CHECK_THROWS_WITH_AS(load_snapshot(older, run.state()), doctest::Contains("is damaged"),
                       FileError);
  CHECK(run.bits() == before);
  CHECK(fs::exists(newest));
  snapshots.clear();
  CHECK_FALSE(snapshots.load_latest(run.state()).has_value());
}

TEST_CASE("snapshot: damaged newer ones never cost the only one that is whole" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  for (const bool can_remove : {true, false}) {
    CAPTURE(can_remove);
    const TemporaryFolder folder;
    Run run(DType::f32);
    run.step();
    run.step();
    {
      SnapshotDirectory snapshots(folder.path, 3);
      for (const int step : {1, 2, 3}) snapshots.save(run.state(), {.step = step});
      for (const fs::path& path : snapshots.list())
        if (path.filename() != "step-000000000001.safetensors") fs::resize_file(path, 5000);
    }
    SnapshotDirectory snapshots(folder.path, 1);
    const auto loads = [&](int64_t step, size_t damaged) {
      const auto loaded = snapshots.load_latest(run.state());
      REQUIRE(loaded.has_value());
      CHECK(loaded->position.step == step);
      CHECK(loaded->damaged.size() == damaged);
    };
    loads(1, 2);
    loads(1, 2);
    file_calls::set_hook([failures = can_remove ? 0 : 1](file_calls::Call call, size_t&) mutable {
      return call == file_calls::Call::unlink && failures-- > 0 ? EPERM : 0;  // of the third one
    });
    snapshots.save(run.state(), {.step = 2});
    file_calls::set_hook({});
    loads(2, can_remove ? 0 : 1);
    CHECK(test::entries(folder.path) == (can_remove ? 2 : 3));
    snapshots.save(run.state(), {.step = 2});
    CHECK(test::entries(folder.path) == 2);  // it and the lock
  }
}

TEST_CASE("snapshot: a folder that is removed comes back with its lock" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "run";
  Run run(DType::f32);
  SnapshotDirectory first(path), second(path);
  first.save(run.state(), {.step = 1});
  fs::remove_all(path);
  first.save(run.state(), {.step = 2});
  CHECK(test::entries(path) == 2);
  CHECK_THROWS_WITH_AS(second.save(run.state(), {.step = 3}), doctest::Contains("is in use by"),
                       FileError);
  // The same in the midst of a save.
  file_calls::set_hook([&](file_calls::Call call, size_t&) {
    if (call == file_calls::Call::rename) fs::remove(path / "lock");
    return 0;
  });
  first.save(run.state(), {.step = 3});
  file_calls::set_hook({});
  CHECK_THROWS_WITH_AS((void)second.load_latest(run.state()), doctest::Contains("is in use by"),
                       FileError);
  // Whoever comes first has a new folder, and the other one is told.
  fs::remove_all(path);
  second.save(run.state(), {.step = 1});
  CHECK_THROWS_WITH_AS(first.save(run.state(), {.step = 4}), doctest::Contains("is in use by"),
                       FileError);
  CHECK(second.list().size() == 1);
}

TEST_CASE("snapshot: further tensors come back" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Run run(DType::f32);
  run.step();
  run.step();  // a window
  Tensor average = tensor({1, 2, 3}, {3});
  TrainingState state = run.state();
  state.extra = {{"average", average}};
  save_snapshot(folder.path / "one", state, run.position);
  average.copy_(zeros({3}));
  load_snapshot(folder.path / "one", state);
  CHECK(average.to_vector() == std::vector<float>{1, 2, 3});
}

TEST_CASE("snapshot: a position that is refused changes nothing" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  SnapshotDirectory snapshots(folder.path);
  Run run(DType::f32);
  run.step();
  run.step();
  snapshots.save(run.state(), {.step = 7, .json = "mine"});
  run.step();
  run.step();
  const auto before = run.bits();
  CHECK_THROWS_WITH_AS((void)snapshots.load_latest(run.state(),
                                                   [](const TrainingPosition& position) {
                                                     CHECK(position.step == 7);
                                                     CHECK(position.json == "mine");
                                                     fail<FileError>("test", "not this one");
                                                   }),
                       doctest::Contains("not this one"), FileError);
  CHECK(run.bits() == before);
}

TEST_CASE("snapshot: whichever call fails or is the last, training goes on from a whole one" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path kept = folder.path / "kept", used = folder.path / "used";
  Run run(DType::f32);
  std::vector<decltype(run.bits())> bits;  // after 2 and 4 steps
  {
    SnapshotDirectory snapshots(kept, 1);
    for (int i = 0; i < 4; ++i) {
      run.step();
      if (i % 2 == 1) bits.push_back(run.bits());
      if (i == 1) snapshots.save(run.state(), run.position);
    }
  }
  // The same work with files as in a resumed process, from the lock to the end of the save.
  const auto resume_and_save = [&] {
    SnapshotDirectory snapshots(used, 1);
    Run other(DType::f32);
    const auto loaded = snapshots.load_latest(other.state());
    REQUIRE(loaded.has_value());
    snapshots.save(run.state(), run.position);
  };
  const auto begin = [&] {
    fs::remove_all(used);
    fs::copy(kept, used);
  };
  begin();
  int calls = 0;
  {
    const FileFaults count;
    resume_and_save();
    calls = count.calls();
  }
  CHECK(calls > 30);
  int old = 0, fresh = 0;
  for (const bool for_good : {false, true}) {
    for (int at = 0; at < calls; ++at) {
      CAPTURE(for_good);
      CAPTURE(at);
      begin();
      const bool threw = fails([&] {
        const FileFaults faults({.at = at, .for_good = for_good});
        resume_and_save();
      });
      SnapshotDirectory snapshots(used, 1);
      Run next(DType::f32);
      const auto loaded = snapshots.load_latest(next.state());
      REQUIRE(loaded.has_value());
      CHECK(loaded->damaged.empty());
      CHECK((loaded->position.step == 4 || (loaded->position.step == 2 && threw)));
      CHECK(next.bits() == bits[loaded->position.step / 4]);
      (loaded->position.step == 4 ? fresh : old) += 1;
      for (const auto& entry : fs::directory_iterator(used))
        CHECK_FALSE(AtomicFile::is_temporary(entry.path()));
      snapshots.save(run.state(), run.position);
      CHECK(test::entries(used) == 2);  // it and the lock
    }
  }
  CHECK(old > calls);
  CHECK(fresh > 4);
}

TEST_CASE("snapshot: files that do not fit are refused before anything is changed" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Run run(DType::f32);
  run.step();
  run.step();
  const auto before = run.bits();
  Sequential other;
  other.emplace<Linear>(2, 2);
  Adam adam(other.parameters());
  save_snapshot(folder.path / "other", {.model = other, .optimizer = adam}, {});
  CHECK_THROWS_WITH_AS(load_snapshot(folder.path / "other", run.state()),
                       doctest::Contains("missing: model.1.weight"), FileError);
  save_model(folder.path / "model", other);
  CHECK_THROWS_WITH_AS(load_snapshot(folder.path / "model", run.state()),
                       doctest::Contains("must be a training snapshot"), FileError);
  CHECK(run.bits() == before);
}
