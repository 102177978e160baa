#include "backends/vulkan/tuning/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "backends/vulkan/matrix/matrix.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/tuning/ways.h"

namespace rw::vulkan {

namespace {

// A block of the device for a scope.
class Block {
 public:
  Block(Backend& device, uint64_t bytes, bool on_host = false)
      : device_(device),
        bytes_(std::max<uint64_t>(256, multiple_of(16, bytes))),
        number_(on_host ? device.allocate_host_block(bytes_) : device.allocate_block(bytes_)) {}
  // On the host, with these contents.
  template <class T>
  Block(Backend& device, const std::vector<T>& contents)
      : Block(device, contents.size() * sizeof(T), true) {
    device.write(range(contents.size() * sizeof(T)), contents.data());
  }
  ~Block() { device_.free_block(number_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  BufferRange range(uint64_t bytes) const { return {number_, 0, bytes}; }
  BufferRange all() const { return range(bytes_); }

 private:
  Backend& device_;
  uint64_t bytes_;
  uint32_t number_;
};

// Numbers in [-1, 1) that look random, as they are stored.
std::vector<std::byte> numbers(DType t, uint64_t bytes, uint32_t seed) {
  std::vector<std::byte> stored(bytes);
  for (uint64_t at = 0; at + size_of(t) <= bytes; at += size_of(t)) {
    seed = seed * 1664525u + 1013904223u;
    const float v = static_cast<float>(seed >> 8) * (2.0f / (1 << 24)) - 1.0f;
    const uint16_t half = to_16_bits(t, v);
    if (t == DType::f32)
      std::memcpy(&stored[at], &v, sizeof v);
    else
      std::memcpy(&stored[at], &half, sizeof half);
  }
  return stored;
}

float value_at(const std::vector<std::byte>& stored, DType t, size_t i) {
  float v;
  uint16_t half;
  if (t == DType::f32) return std::memcpy(&v, &stored[4 * i], 4), v;
  std::memcpy(&half, &stored[2 * i], 2);
  return from_16_bits(t, half);
}

// Whether results agree, up to the rounding of their type and of long sums. Bytes that nobody wrote
// are NaNs in both.
bool agree(const std::vector<std::byte>& got, const std::vector<std::byte>& expected, DType t) {
  const float relative = t == DType::f32 ? 5e-5f : t == DType::f16 ? 4e-3f : 2e-2f;
  const size_t count = got.size() / size_of(t);
  float most = 0;
  for (size_t i = 0; i < count; ++i)
    if (const float e = std::abs(value_at(expected, t, i)); e > most) most = e;
  for (size_t i = 0; i < count; ++i) {
    const float g = value_at(got, t, i), e = value_at(expected, t, i);
    if (std::isnan(g) != std::isnan(e) || std::abs(g - e) > relative * most) return false;
  }
  return true;
}

// A product with tensors of its own.
class Task {
 public:
  Task(Backend& device, const Caps& caps, const Product& product)
      : device_(device), caps_(caps), product_(product) {
    for (uint32_t i = 0; i < 3; ++i) {
      Binding& b = product_.bindings[i];
      blocks_.push_back(std::make_unique<Block>(device, b.range.size));
      const std::vector<std::byte> values = numbers(b.dtype, b.range.size, i + 1);
      b.range = blocks_.back()->range(b.range.size);
      device.write(b.range, values.data());
    }
  }

  const Passes& passes(const Choice& choice) {
    const auto [found, is_new] = passes_.try_emplace(name(choice));
    if (is_new) add_product(found->second, caps_, product_.call(), choice);
    return found->second;
  }
  void run(const Choice& choice, BufferRange workspace) {
    const Passes& passes = this->passes(choice);
    KernelCall call = product_.call();
    call.preparation = &passes;
    call.workspace = {workspace.block, 0, passes.workspace_bytes};
    device_.run(call);
  }
  // The result of one run, in a tensor that was full of NaNs unless the product adds to it.
  std::vector<std::byte> result(const Choice& choice, BufferRange workspace) {
    const Binding& c = product_.bindings[2];
    const std::vector<std::byte> before =
        adds() ? numbers(c.dtype, c.range.size, 3)
               : std::vector<std::byte>(c.range.size, std::byte{0xFF});
    device_.write(c.range, before.data());
    run(choice, workspace);
    std::vector<std::byte> after(c.range.size);
    device_.read(c.range, after.data());
    return after;
  }
  DType dtype() const { return product_.bindings[2].dtype; }

 private:
  bool adds() const {
    return product_.kernel == "matmul" &&
           params_of<kernels::MatmulParams>(product_.call()).beta != 0;
  }

  Backend& device_;
  const Caps& caps_;
  Product product_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::map<std::string, Passes> passes_;
};

// The seconds that calls took, each from the beginning of its first kernel to the end of its last.
double seconds_of(const std::vector<KernelTime>& times) {
  double us = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const bool goes_on = i > 0 && times[i - 1].call == times[i].call;
    us += times[i].end_us - (goes_on ? times[i - 1].end_us : times[i].start_us);
  }
  return us * 1e-6;
}

// All products of a class, run one after the other.
class Bench {
 public:
  Bench(Backend& device, const Caps& caps, std::span<const Product> products, double round)
      : device_(device), round_(round) {
    for (const Product& p : products) tasks_.push_back(std::make_unique<Task>(device, caps, p));
  }

  uint64_t workspace(const Choice& choice) const {
    uint64_t most = 0;
    for (const auto& task : tasks_) most = std::max(most, task->passes(choice).workspace_bytes);
    return most;
  }

  // The seconds of one run of all products: the mean of enough runs for a round, on the device's
  // clock if it has one.
  double time(const Choice& choice, double guess) {
    const int runs = std::clamp(static_cast<int>(round_ / std::max(guess, 1e-7)), 1, 1000);
    const BufferRange workspace = scratch(choice);
    device_.synchronize();
    device_.time_kernels(true);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i)
      for (const auto& task : tasks_) task->run(choice, workspace);
    device_.synchronize();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    const std::vector<KernelTime> times = device_.kernel_times();
    device_.time_kernels(false);
    return (times.empty() ? wall.count() : seconds_of(times)) / runs;
  }

  double time_once(const Choice& choice) { return time(choice, round_); }
  double round() const { return round_; }

  // Whether the results agree with those of a way that is known to be right.
  bool is_right(const Choice& choice, const Choice& known) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (expected_.size() == i) expected_.push_back(tasks_[i]->result(known, scratch(known)));
      const BufferRange workspace = scratch(choice);
      if (!agree(tasks_[i]->result(choice, workspace), expected_[i], tasks_[i]->dtype()))
        return false;
    }
    return true;
  }

 private:
  BufferRange scratch(const Choice& choice) {
    const uint64_t bytes = workspace(choice);
    if (!scratch_ || scratch_->all().size < bytes) {
      scratch_.reset();
      scratch_ = std::make_unique<Block>(device_, bytes);
    }
    return scratch_->all();
  }

  Backend& device_;
  double round_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::unique_ptr<Block> scratch_;
  std::vector<std::vector<std::byte>> expected_;
};

struct Timed {
  Choice choice;
  double seconds;
};

// Runs each way once. Much slower ones do not run again.
void look(Bench& bench, std::span<const Choice> choices, std::vector<Timed>& found) {
  for (const Choice& choice : choices) {
    double seconds = bench.time_once(choice);  // compiles
    const double best = found.empty() ? seconds : found.front().seconds;
    if (seconds < 5 * best) seconds = bench.time_once(choice);
    if (seconds < 2 * best && seconds < bench.round()) seconds = bench.time(choice, seconds);
    found.push_back({choice, seconds});
    std::sort(found.begin(), found.end(),
              [](const Timed& a, const Timed& b) { return a.seconds < b.seconds; });
  }
}

// The value that is larger than this share of the values.
double quantile(std::vector<double> values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

// How much faster each challenger is than the standard: the median over rounds in which all run, or
// 1 if it is not faster in three rounds of four.
std::vector<double> gains(Bench& bench, const Timed& standard, std::span<const Timed> challengers,
                          int rounds, double& seconds) {
  std::vector<std::vector<double>> ratios(challengers.size());
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    times.push_back(bench.time(standard.choice, standard.seconds));
    for (size_t i = 0; i < challengers.size(); ++i)
      ratios[i].push_back(times.back() / bench.time(challengers[i].choice, challengers[i].seconds));
  }
  seconds = median(times);
  std::vector<double> medians;
  for (const std::vector<double>& r : ratios)
    medians.push_back(quantile(r, 0.25) > 1 ? median(r) : 1);
  return medians;
}

}  // namespace

Verdict measure(Backend& device, const Caps& caps, std::span<const Product> products, double round,
                int rounds) {
  std::vector<KernelCall> calls;
  for (const Product& p : products) calls.push_back(p.call());
  Ways ways(calls, caps);
  Bench bench(device, caps, products, round);
  Verdict verdict;
  verdict.standard = verdict.choice = ways.standard();

  // Element by element, large products take too long.
  double flops = 0;
  for (const KernelCall& call : calls) flops += flops_of(call, caps);
  const Choice naive{.family = Choice::Family::naive};
  const bool is_small = flops < (caps.is_cpu ? 1e9 : 1e11);
  std::vector<Choice> plain = plain_choices(caps.is_cpu);
  if (!is_small) std::erase(plain, naive);

  // First plain ways, then finer ones of the best two, then of the best of those.
  std::vector<Timed> found;
  const Choice standard[] = {{}};
  look(bench, standard, found);
  const Timed first = found.front();
  look(bench, ways.fresh(plain), found);
  const auto refine = [&](std::vector<Choice> (*finer)(const Choice&)) {
    const std::vector<Timed> best(found.begin(),
                                  found.begin() + std::min<std::ptrdiff_t>(2, std::ssize(found)));
    for (const Timed& t : best)
      look(bench, ways.fresh(finer(t.choice == Choice{} ? ways.standard() : t.choice)), found);
  };
  refine(with_panels);
  refine(with_parts);
  verdict.ways = found.size();

  std::vector<Timed> challengers;
  for (const Timed& t : found) {
    if (challengers.size() == 3 || t.choice == Choice{} || t.seconds > 1.2 * first.seconds)
      continue;
    if (bench.is_right(t.choice, is_small ? naive : Choice{}))
      challengers.push_back(t);
    else
      verdict.wrong.push_back(name(t.choice));
  }
  verdict.workspace[0] = verdict.workspace[1] = bench.workspace({});
  const std::vector<double> medians = gains(bench, first, challengers, rounds, verdict.seconds);
  const auto best = std::max_element(medians.begin(), medians.end());
  if (best == medians.end() || *best < least_gain) return verdict;
  const Timed& winner = challengers[static_cast<size_t>(best - medians.begin())];
  const double again = gains(bench, first, {&winner, 1}, rounds, verdict.seconds).front();
  if (again < least_gain) return verdict;
  verdict.choice = winner.choice;
  verdict.ratio = again;
  verdict.workspace[1] = bench.workspace(winner.choice);
  return verdict;
}

namespace {

// The least seconds of some rounds.
double least_seconds(Backend& device, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  constexpr int rounds = 8;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    device.synchronize();
    const auto start = Clock::now();
    run();
    device.synchronize();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return least;
}

// The bytes per second that Adam's update reads and writes on the host.
double host_update_speed(Backend& device) {
  constexpr uint32_t n = 1 << 22, shift = 15, chunk = REWIND_FLAT << shift, rows = n / chunk;
  const std::vector<float> zeros(n);
  std::vector<float> control(STATE_MISSED(rows));
  control[STATE_UPDATES] = control[STATE_LR_FACTOR] = control[STATE_GRAD_FACTOR] = 1;
  std::vector<std::array<uint32_t, CHUNK_ROW>> table;
  for (uint32_t i = 0; i < rows; ++i) table.push_back({i * chunk, i * chunk, chunk, i});
  const Block w(device, zeros), gradient(device, zeros), m(device, zeros), v(device, zeros),
      at(device, table), state(device, control);
  const auto binding = [](const Block& block, DType dtype, Access access) {
    return Binding{block.all(), dtype, access};
  };
  const std::array bindings = {
      binding(w, DType::f32, Access::read_write), binding(gradient, DType::f32, Access::read),
      binding(m, DType::f32, Access::read_write), binding(v, DType::f32, Access::read_write),
      binding(at, DType::i32, Access::read),      binding(state, DType::f32, Access::read)};
  const kernels::AdamParams p{.offset = {},
                              .first = 0,
                              .rows = rows,
                              .shift = shift,
                              .lr = 1e-3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .eps = 1e-8f};
  const KernelCall call{.kernel = "adam",
                        .bindings = bindings,
                        .params = std::as_bytes(std::span(&p, 1)),
                        .threads = {rows << shift, 1, 1}};
  return static_cast<double>(bytes_moved(call)) /
         least_seconds(device, [&] { device.run_on_host(call); });
}

}  // namespace

HostBandwidth measure_host(Backend& device) {
  constexpr uint64_t bytes = uint64_t{64} << 20;
  const Block here(device, bytes), there(device, bytes, true);
  const auto speed = [&](const Block& from, const Block& to) {
    return static_cast<double>(bytes) /
           least_seconds(device, [&] { device.copy(from.all(), to.all()); });
  };
  return {speed(here, there), speed(there, here), host_update_speed(device)};
}

}  // namespace rw::vulkan
