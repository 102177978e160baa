// Several threads on one device: each has its own tape, and they share the device's lock.
#include <atomic>
#include <thread>

#include "core/autograd/gradients.h"
#include "core/base/parallel.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/losses/losses.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int thread_steps = 12;

// Trains a small model of its own and returns its weights, which are the same for the same seed.
std::vector<float> train_own_model(uint64_t seed) {
  const GeneratorScope generator(seed);
  Sequential model;
  model.emplace<Linear>(16, 32);
  model.emplace<ReLU>();
  model.emplace<Dropout>(0.2f);
  model.emplace<Linear>(32, 4);
  Adam optimizer(model.parameters());
  for (int step = 0; step < thread_steps; ++step) {
    const Tensor x = rand({8, 16});
    Tensor y;
    {
      const auto segment = checkpoint();
      y = model(x);
    }
    const Tensor loss = mse_loss(y, slice(x, 1, 0, 4));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 4 == 0) default_device()->end_step();
  }
  std::vector<float> weights;
  for (const Tensor& p : model.parameters())
    for (const float w : p.to_vector()) weights.push_back(w);
  return weights;
}

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&body, t] { body(t); });
}

}  // namespace

TEST_CASE("threads: models of several threads on one device give the bits that each gives alone") {
  on_each_device([] {
    std::vector<std::vector<float>> alone, together(3);
    for (uint64_t seed = 0; seed < 3; ++seed) alone.push_back(train_own_model(seed));
    for (int round = 0; round < 3; ++round) {
      in_threads(3, [&](int t) {
        together[static_cast<size_t>(t)] = train_own_model(static_cast<uint64_t>(t));
      });
      for (size_t t = 0; t < 3; ++t) CHECK(together[t] == alone[t]);
    }
    CHECK(default_device()->memory_report().live == 0);
  });
}

TEST_CASE("threads: one model evaluated by several threads") {
  on_each_device([] {
    Sequential model;
    model.emplace<Linear>(16, 64);
    model.emplace<ReLU>();
    model.emplace<Linear>(64, 4);
    const Tensor x = rand({8, 16});
    const std::vector<float> expected = model(x).to_vector();
    std::atomic<int> wrong = 0;
    in_threads(4, [&](int) {
      const NoGrad guard;
      for (int i = 0; i < 20; ++i) {
        for (const Tensor& p : model.parameters()) wrong += !p.defined();
        wrong += model(x).to_vector() != expected;
      }
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("threads: batches made by one thread and trained on by another") {
  on_each_device([] {
    Tensor w = full({8}, 1).set_requires_grad();
    std::atomic<int> ready = 0, taken = 0;
    Tensor batch;
    std::jthread loader([&] {
      for (int i = 1; i <= 20; ++i) {
        while (taken != i - 1) std::this_thread::yield();
        batch = full({8}, static_cast<float>(i)) * 2.0f;
        ready = i;
      }
    });
    for (int i = 1; i <= 20; ++i) {
      while (ready != i) std::this_thread::yield();
      const Tensor x = std::exchange(batch, {});
      taken = i;
      sum(w * x).backward();
    }
    CHECK(w.grad().to_vector()[0] == 420);
  });
}

TEST_CASE("threads: the last handles of a graph may be dropped anywhere") {
  on_each_device([] {
    const auto device = default_device();
    Tape& tape = *Tape::current();
    for (int i = 0; i < 50; ++i) {
      Tensor w = full({64}, 1).set_requires_grad();
      Tensor y;
      {
        const auto segment = checkpoint();
        y = tanh(exp(w) * 2.0f);
      }
      Tensor loss = sum(square(y));
      std::vector<Tensor> handles;
      for (Tensor* t : {&w, &y, &loss}) handles.push_back(std::move(*t));
      std::jthread([taken = std::move(handles)] {}).join();
    }
    CHECK(tape.stats().records > 0);  // until this thread uses its tape again
    const Tensor after = zeros({1}).set_requires_grad();
    { const Tensor loss = after * 2.0f; }
    CHECK(tape.stats().records == 0);
    CHECK(device->memory_report().live == after.impl().storage->range().size);
  });
}

TEST_CASE(
    "threads: the last handle of a device may be dropped anywhere, with a thread's tape too") {
  for (const char* kind : {"cpu", "vulkan"}) {
    std::shared_ptr<Device> device;
    try {
      device = Device::create(open_backend(kind));
    } catch (const DeviceError&) {
      continue;
    }
    Tensor kept;
    std::jthread([&] {
      const DeviceScope scope(device);
      Tensor w = full({64}, 1).set_requires_grad();
      kept = tanh(exp(w));  // its record dies with the thread
    }).join();
    CHECK(kept.to_vector().size() == 64);
    CHECK_THROWS_AS(sum(kept).backward(), AutogradError);  // recorded by another thread
    std::jthread([t = std::move(kept), d = std::move(device)]() mutable {
      d.reset();
      t = {};
    }).join();
  }
}

TEST_CASE_FIXTURE(CpuDevice, "threads: the first record of a tape is like all others" *
                                 doctest::test_suite("host")) {
  // Each runs in a thread of its own, whose tape begins with record 0, and again on this tape.
  using Run = std::function<std::vector<float>(const Tensor& w)>;
  const auto gradient_of = [](const Tensor& w, const Tensor& loss) {
    loss.backward();
    return w.grad().to_vector();
  };
  const Run runs[] = {[&](const Tensor& w) { return gradient_of(w, sum(w)); },
                      [&](const Tensor& w) {
                        const auto segment = checkpoint();
                        return gradient_of(w, sum(exp(sin(w))));
                      },
                      [&](const Tensor& w) {
                        Tensor y;
                        {
                          const auto outer = checkpoint();
                          const auto inner = checkpoint();
                          y = exp(sin(w));
                        }
                        return gradient_of(w, sum(y * y));
                      },
                      [](const Tensor& w) {
                        const Tensor slope = grad({sum(sin(w))}, {w}, {.create_graph = true})[0];
                        return grad({sum(slope)}, {w})[0].to_vector();
                      },
                      [](const Tensor& w) {
                        Tensor y = sin(w);
                        const Tensor loss = sum(exp(y));
                        return grad({loss}, {y})[0].to_vector();
                      },
                      [&](const Tensor& w) {
                        std::vector<float> seen;
                        Tensor leaf = w;
                        leaf.register_post_accumulate_grad_hook([&](const Tensor& x) {
                          const std::vector<float> values = x.grad().to_vector();
                          seen.insert(seen.end(), values.begin(), values.end());
                        });
                        sum(leaf).backward();
                        return seen;
                      }};
  for (size_t i = 0; i < std::size(runs); ++i) {
    CAPTURE(i);
    std::vector<float> first;
    std::thread([&] { first = runs[i](leaf(5)); }).join();
    const std::vector<float> later = runs[i](leaf(5));
    CHECK(first == later);
    CHECK(first.size() == 5);
  }
}

TEST_CASE("threads: a dry run in one thread is nobody else's") {
  on_each_device([] {
    const std::vector<float> expected = train_own_model(7);
    const auto device = default_device();
    std::atomic<bool> done = false;
    std::jthread planner([&] {
      while (!done) {
        plan([] { train_own_model(1); });
        CHECK(default_device() == device);
      }
    });
    for (int i = 0; i < 3; ++i) CHECK(train_own_model(7) == expected);
    done = true;
  });
}

TEST_CASE("threads: random numbers of one generator are given out once" *
          doctest::test_suite("host")) {
  Generator generator(3);
  std::vector<std::vector<uint64_t>> taken(4);
  in_threads(4, [&](int t) {
    for (int i = 0; i < 1000; ++i) taken[static_cast<size_t>(t)].push_back(generator.take(4).first);
  });
  std::vector<uint64_t> all;
  for (const auto& part : taken) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  CHECK(all.size() == 4000);
  CHECK(std::unique(all.begin(), all.end()) == all.end());
  CHECK(generator.position() == 4000);
}

TEST_CASE("threads: parallel_for takes every number once, and tells what was thrown" *
          doctest::test_suite("host")) {
  for (const unsigned threads : {0u, 1u, 4u}) {
    std::vector<std::atomic<int>> taken(100);
    parallel_for(taken.size(), threads, [&](size_t i) { ++taken[i]; });
    CHECK(std::all_of(taken.begin(), taken.end(), [](const auto& n) { return n == 1; }));
    parallel_for(0, threads, [](size_t) { FAIL("no numbers"); });
    CHECK_THROWS_AS(parallel_for(50, threads,
                                 [](size_t i) {
                                   if (i % 10 == 3)
                                     fail<ValueError>("parallel_for", "{} is bad", i);
                                 }),
                    ValueError);
  }
}

}  // namespace rw::test
