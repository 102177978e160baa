#include "rewind/backends/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <numeric>
#include <optional>

#include "rewind/backends/check_record.h"
#include "rewind/backends/cpu/cpu_backend.h"
#include "rewind/core/backend/unsupported.h"
#include "rewind/core/base/child_process.h"
#include "rewind/core/memory/default_device.h"
#include "rewind/core/ops/operators.h"
#include "rewind/core/ops/ops.h"

namespace rw {

namespace {

struct Check {
  const char* name;
  std::vector<Tensor> (*run)(DType dtype);
  bool is_exact = false;  // the same bits, but that a NaN may be any NaN; runs once
};

// Of the largest value of an output.
float tolerance(DType dtype) {
  return dtype == DType::f16 ? 4e-3f : 2e-5f;
}

// Numbers in [-2, 2] that look random and are the same everywhere.
Tensor numbers(const Shape& shape, DType dtype, uint32_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) * (4.0f / (1 << 24)) - 2.0f;
  }
  return tensor(values, shape, dtype);
}

Tensor leaf(const Shape& shape, DType dtype, uint32_t seed) {
  return numbers(shape, dtype, seed).set_requires_grad();
}

// y, and the gradients of the leaves for a dy that is not all the same.
std::vector<Tensor> with_gradients(Tensor y, std::initializer_list<Tensor> leaves) {
  y.backward(numbers(y.shape(), y.dtype(), 99));
  std::vector<Tensor> all = {y.detach()};
  for (const Tensor& t : leaves) all.push_back(t.grad());
  return all;
}

// f32 values on which conversions to f16 and bf16 differ: ties, the last that is finite and the
// first that is not, denormals and ties among them, zeros.
std::vector<float> hard_to_round() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      0.0f,          1.0f,           2049.0f,       2051.0f, 4098.0f,       65504.0f, 65519.0f,
      65520.0f,      1e10f,          3.0e38f,       inf,     std::nanf(""), 6.0e-5f,  5.9604645e-8f,
      2.9802322e-8f, 2.9802326e-8f,  8.940697e-8f,  1e-8f,   1e-40f,        1.0f / 3, 0.1f,
      1234.567f,     1.00048828125f, 1.00146484375f};
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  return values;  // 48: whole words of any kind
}

std::vector<Tensor> to_16_bits(DType) {
  const std::vector<float> values = hard_to_round();
  const auto count = static_cast<int64_t>(values.size());
  const Tensor x = tensor(values, {count});
  std::vector<Tensor> all;
  for (const DType half : {DType::f16, DType::bf16}) {
    all.push_back(cast(x, half));
    // Every second element: stored one by one.
    all.push_back(cast(slice(concat({x, x}, 0), 0, 1, 2 * count, 2), half));
  }
  return all;
}

std::vector<Tensor> from_16_bits(DType) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  std::vector<Tensor> all;
  for (const DType half : {DType::f16, DType::bf16}) {
    const Tensor x = empty({256, 256}, half);
    write_elements(x, 0, x.numel(), halves.data());
    all.push_back(cast(x, DType::f32));
    all.push_back(cast(transpose(x, 0, 1), DType::f32));
  }
  return all;
}

std::vector<Tensor> elementwise(DType t) {
  const Tensor x = numbers({7, 24}, t), y = numbers({24}, t, 2);
  return {exp(x),
          log(abs(x) + 0.1f),
          sqrt(abs(x)),
          tanh(x),
          gelu(x),
          x / (abs(y) + 0.5f),
          cast(greater(x, y), DType::f32),
          transpose(x, 0, 1) * 3.0f};
}

std::vector<Tensor> reductions(DType t) {
  const Tensor x = numbers({37, 70}, t);
  return {sum(x, {0}),  sum(x, {1}), mean(x), max(x, {1}), cast(argmax(x, 1), DType::f32),
          softmax(x, 1)};
}

std::vector<Tensor> long_loops(DType) {
  return {sum(full({70001}, 0.5f)), cumsum(full({70001}, 1.0f), 0)};
}

std::vector<Tensor> layer_norms(DType t) {
  const Tensor x = leaf({5, 24}, t, 3), w = leaf({24}, DType::f32, 4),
               b = leaf({24}, DType::f32, 5);
  std::vector<Tensor> all = with_gradients(layer_norm(x, w, b), {x, w, b});
  all.push_back(layer_norm(numbers({3, 601}, t)));
  all.push_back(rms_norm(numbers({4, 64}, t)));
  return all;
}

std::vector<Tensor> batch_norms(DType t) {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{9, 5}, Shape{70, 8}}) {
    const int64_t c = shape[1];
    const Tensor x = leaf(shape, t, 6), w = leaf({c}, DType::f32, 7), b = leaf({c}, DType::f32, 8);
    for (Tensor& y : with_gradients(batch_norm(x, w, b, 1e-3f).y, {x, w, b}))
      all.push_back(std::move(y));
  }
  return all;
}

std::vector<Tensor> group_norms(DType t) {
  const Tensor x = leaf({2, 9, 12}, t, 9), w = leaf({12}, DType::f32, 10),
               b = leaf({12}, DType::f32, 11);
  return with_gradients(group_norm(x, 3, w, b), {x, w, b});
}

std::vector<Tensor> products(DType t) {
  const Tensor a = numbers({33, 40}, t, 12), b = numbers({40, 18}, t, 13);
  const Tensor c = numbers({130, 70}, t, 14), d = numbers({100, 70}, t, 15);
  std::vector<Tensor> all = {matmul(a, b), matmul(transpose(b, 0, 1), transpose(a, 0, 1)),
                             matmul(c, transpose(d, 0, 1)),
                             matmul(numbers({3, 5, 600}, t, 16), numbers({3, 600, 7}, t, 17))};
  if (t == DType::f32) return all;
  // Enough for the largest tiles; and bf16, which has matrices of its own.
  all.push_back(matmul(numbers({64, 72, 40}, t, 24), numbers({64, 40, 72}, t, 25)));
  all.push_back(matmul(cast(c, DType::bf16), cast(transpose(d, 0, 1), DType::bf16)));
  return all;
}

std::vector<Tensor> convolutions(DType t) {
  const Tensor x = leaf({2, 6, 5, 8}, t, 18), w = leaf({12, 3, 3, 8}, t, 19);
  return with_gradients(conv2d(x, w, {.stride = {2, 1}, .padding = 1}), {x, w});
}

std::vector<Tensor> attentions(DType t) {
  const Shape shape = {1, 2, 17, 16};
  const Tensor q = leaf(shape, t, 20), k = leaf(shape, t, 21), v = leaf(shape, t, 22);
  return with_gradients(attention(q, k, v, {.causal = true}), {q, k, v});
}

std::vector<Tensor> indices(DType t) {
  const Tensor table = leaf({9, 16}, t, 23);
  const int32_t rows[] = {3, 0, 3, 8, 3, 1, 8};
  return with_gradients(embedding(table, tensor(rows, {7})), {table});
}

const Check checks[] = {{"conversion to 16 bits", to_16_bits, true},
                        {"conversion from 16 bits", from_16_bits, true},
                        {"long loops", long_loops, true},
                        {"elementwise functions", elementwise},
                        {"reductions", reductions},
                        {"layer_norm", layer_norms},
                        {"batch_norm", batch_norms},
                        {"group_norm", group_norms},
                        {"matmul", products},
                        {"conv2d", convolutions},
                        {"attention", attentions},
                        {"embedding", indices}};

struct Answer {
  Shape shape;
  DType dtype;
  std::vector<float> values;
};

// The check's outputs on a device, with a state of its own: whoever opens a device may be in any
// scope.
std::vector<Answer> answers(const Check& check, DType dtype,
                            const std::shared_ptr<Device>& device) {
  const ThreadStateScope state{ThreadState{}};
  const DeviceScope scope(device);
  std::vector<Answer> all;
  for (const Tensor& t : check.run(dtype)) all.push_back({t.shape(), t.dtype(), t.to_vector()});
  return all;
}

// `slack`: how far off it may be; 0: not in one bit.
bool agrees(float got, float expected, float slack) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (slack == 0) return std::memcmp(&got, &expected, sizeof got) == 0;
  return got == expected || std::abs(got - expected) <= slack;
}

// What is wrong with an output; empty: nothing.
std::string fault_in(const Answer& got, const Answer& expected, float relative) {
  float most = 0;
  for (const float v : expected.values) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < expected.values.size(); ++i)
    if (!agrees(got.values[i], expected.values[i], relative ? relative * most : 0))
      return fmt::format("element {} of {} {} must be {}, got {}", i, name(expected.dtype),
                         expected.shape.str(), expected.values[i], got.values[i]);
  return "";
}

struct Task {
  const Check* check;
  DType dtype;
  std::string name() const {
    return check->is_exact ? check->name : fmt::format("{} in {}", check->name, rw::name(dtype));
  }
};
struct Fault {
  Task task;
  std::string text;
};
using Open = std::function<std::unique_ptr<Backend>()>;
using Tasks = std::vector<Task>;

Tasks all_tasks() {
  Tasks tasks;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Check& check : checks)
      if (!check.is_exact || dtype == DType::f32) tasks.push_back({&check, dtype});
  return tasks;
}

// What is wrong with the device in one check; empty: nothing.
std::string run_check(const Task& task, const std::shared_ptr<Device>& device,
                      const std::shared_ptr<Device>& oracle) {
  const auto& [check, dtype] = task;
  try {
    const std::vector<Answer> got = answers(*check, dtype, device);
    const std::vector<Answer> expected = answers(*check, dtype, oracle);
    for (size_t k = 0; k < expected.size(); ++k) {
      const std::string fault =
          fault_in(got[k], expected[k], check->is_exact ? 0 : tolerance(dtype));
      if (!fault.empty()) return fmt::format("{}: output {}: {}", task.name(), k, fault);
    }
  } catch (const Unsupported&) {  // an error where it is used, and no wrong result
  } catch (const Error& e) {
    return fmt::format("{}: {}", task.name(), e.what());
  }
  return "";
}

// What is told of a task, by its number: that it begins (no text) or that it has ended, and with
// which fault.
struct Watcher {
  std::function<void(size_t)> begins;
  std::function<void(size_t, const std::string& fault)> ends;
};

// f32 and f16 side by side, as most of the time goes to compiling.
void run_tasks(const Open& open, const Tasks& tasks, const Watcher& watcher) {
  const auto run = [&](DType dtype) {
    const auto is_ours = [&](const Task& task) { return task.dtype == dtype; };
    if (std::none_of(tasks.begin(), tasks.end(), is_ours)) return;
    const std::shared_ptr<Device> device = Device::create(open());
    const std::shared_ptr<Device> oracle = Device::create(make_cpu_backend());
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (!is_ours(tasks[i])) continue;
      watcher.begins(i);
      watcher.ends(i, run_check(tasks[i], device, oracle));
    }
  };
  auto halves = std::async(std::launch::async, run, DType::f16);
  run(DType::f32);
  halves.get();
}

// What is known of the checks of a device without some features, and learnt.
struct Findings {
  CheckRecord& record;
  const std::vector<RefusedFeature>& without;

  bool has(const Task& task) const { return record.fault(without, task.name()).has_value(); }
  void add(const Task& task, const std::string& fault) const {
    record.add(without, task.name(), fault);
  }
};

Tasks tasks_left(const Tasks& tasks, const Findings& findings) {
  Tasks left = tasks;
  std::erase_if(left, [&](const Task& task) { return findings.has(task); });
  return left;
}

// The same in a child process, which may crash or never end: that is the fault of the tasks that
// had begun. False: that says nothing of the device, as the child did not get as far as to a task
// or fell asleep: it has no threads of a driver that was loaded before it began.
bool run_tasks_in_child(const Open& open, const Tasks& tasks, double seconds,
                        const Findings& findings) {
  std::vector<bool> is_running(tasks.size());
  bool has_begun = false;
  const ChildEnd end = run_in_child(
      [&](const Send& send) {
        run_tasks(
            open, tasks,
            {[&](size_t i) { send(fmt::format("{} begins", i)); },
             [&](size_t i, const std::string& fault) { send(fmt::format("{} {}", i, fault)); }});
      },
      [&](const std::string& line) {
        const size_t i = std::stoul(line), space = line.find(' ');
        has_begun = true;
        is_running[i] = line.substr(space + 1) == "begins";
        if (!is_running[i]) findings.add(tasks[i], line.substr(space + 1));
      },
      seconds);
  if (end.is_asleep || (!has_begun && !end.failure.empty())) return false;
  for (size_t i = 0; i < tasks.size(); ++i)
    if (is_running[i]) findings.add(tasks[i], fmt::format("{}: {}", tasks[i].name(), end.failure));
  return true;
}

std::vector<Fault> find_faults(const Open& open, const Tasks& tasks, double child_seconds,
                               const Findings& findings) {
  Tasks left = tasks_left(tasks, findings);
  const bool is_done = left.empty() || (child_seconds > 0 &&
                                        run_tasks_in_child(open, left, child_seconds, findings));
  if (!is_done) {
    left = tasks_left(left, findings);
    run_tasks(
        open, left,
        {[](size_t) {}, [&](size_t i, const std::string& fault) { findings.add(left[i], fault); }});
  }
  std::vector<Fault> faults;
  for (const Task& task : tasks) {
    const std::string fault = findings.record.fault(findings.without, task.name()).value_or("");
    if (!fault.empty()) faults.push_back({task, fault});
  }
  return faults;
}

std::string list(const std::vector<Fault>& faults) {
  constexpr size_t most = 8;
  std::string text;
  for (size_t i = 0; i < std::min(most, faults.size()); ++i) text += "\n  " + faults[i].text;
  if (faults.size() > most) text += fmt::format("\n  and {} more", faults.size() - most);
  return text;
}

// The features without which there are no faults: one where one is enough, the least loss first in
// `features`, else the first ones together.
std::vector<RefusedFeature> refuse_faulty_features(const OpenWithout& open,
                                                   std::span<const std::string> features,
                                                   double child_seconds, CheckRecord& record) {
  const auto faults_without = [&](const std::vector<RefusedFeature>& without, const Tasks& tasks) {
    return find_faults([&] { return open(without); }, tasks, child_seconds, {record, without});
  };
  const std::vector<Fault> faults = faults_without({}, all_tasks());
  if (faults.empty()) return {};
  const std::string& first = faults.front().text;
  Tasks failed;
  for (const Fault& fault : faults) failed.push_back(fault.task);
  // What failed decides first.
  const auto mends = [&](const std::vector<RefusedFeature>& without) {
    return faults_without(without, failed).empty() && faults_without(without, all_tasks()).empty();
  };
  for (const std::string& feature : features)
    if (mends({{feature, first}})) return {{feature, first}};
  std::vector<RefusedFeature> refused;
  for (const std::string& feature : features) {
    refused.push_back({feature, first});
    if (refused.size() > 1 && mends(refused)) return refused;
  }
  fail<DeviceError>(
      "self-check",
      "the device must give the right answers, with or without its optional features; "
      "it does not, try a newer driver:{}",
      list(faults));
}

}  // namespace

std::vector<std::string> find_faults(const Open& open) {
  CheckRecord record("");
  const std::vector<RefusedFeature> nothing;
  std::vector<std::string> texts;
  for (Fault& fault : find_faults(open, all_tasks(), 0, {record, nothing}))
    texts.push_back(std::move(fault.text));
  return texts;
}

std::vector<RefusedFeature> refused_features(const std::string& file, const OpenWithout& open,
                                             std::span<const std::string> features,
                                             double child_seconds) {
  CheckRecord record(file);
  if (auto known = record.verdict()) return *known;
  std::vector<RefusedFeature> refused =
      refuse_faulty_features(open, features, child_seconds, record);
  record.conclude(refused);
  return refused;
}

}  // namespace rw
