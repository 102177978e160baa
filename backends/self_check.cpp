#include "backends/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "backends/check_programs.h"
#include "backends/reference/reference_backend.h"
#include "core/backend/unsupported.h"
#include "core/files/cache.h"
#include "core/files/child_process.h"
#include "core/memory/default_device.h"
#include "ops/operators.h"
#include "ops/ops.h"

namespace rw {

namespace {

constexpr const char* verdict_head = "self-check";
constexpr const char* checks_head = "self-check, not at its end";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// A file is a head and pairs of lines.
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::optional<Pairs> read_pairs(const std::string& file, const char* head) {
  if (file.empty()) return std::nullopt;
  const std::vector<std::byte> bytes = read_cache(file);
  std::istringstream in(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::string line;
  if (!std::getline(in, line) || line != head) return std::nullopt;
  Pairs pairs;
  for (std::string key, value; std::getline(in, key) && std::getline(in, value);)
    pairs.emplace_back(key, value);
  return pairs;
}

void write_pairs(const std::string& file, const char* head, const auto& pairs) {
  std::string text = std::string(head) + "\n";
  for (const auto& [key, value] : pairs) text += one_line(key) + "\n" + one_line(value) + "\n";
  write_cache(file, std::as_bytes(std::span(text)));
}

std::string key_of(const std::vector<RefusedFeature>& without, const std::string& check) {
  std::string key = check;
  for (const RefusedFeature& feature : without) key += " without " + feature.name;
  return key;
}

// The stored results of self-checks: the verdict on a device, and until there is one the result of
// each check. So if a process is killed, or a busy machine gives it no time, its work is not lost:
// the next one continues.
//
// The record lies in files of the cache, which several processes may write at once. Any thread may
// use it.
class CheckRecord {
 public:
  explicit CheckRecord(std::string file);  // empty: it lasts as long as this object

  std::optional<std::vector<RefusedFeature>> verdict() const;
  void conclude(const std::vector<RefusedFeature>& refused);

  // Returns the fault that a check of the device without some features found, which is empty if
  // there was none. Returns nothing if the check has not ended yet.
  std::optional<std::string> fault(const std::vector<RefusedFeature>& without,
                                   const std::string& check) const;
  void add(const std::vector<RefusedFeature>& without, const std::string& check,
           const std::string& fault);

 private:
  using Faults = std::map<std::string, std::string>;  // by check and features
  Faults stored() const;
  std::string checks_file() const { return file_ + "-checks"; }

  const std::string file_;
  mutable std::mutex mutex_;
  Faults faults_;
};

CheckRecord::CheckRecord(std::string file) : file_(std::move(file)), faults_(stored()) {}

CheckRecord::Faults CheckRecord::stored() const {
  const Pairs pairs =
      file_.empty() ? Pairs() : read_pairs(checks_file(), checks_head).value_or(Pairs());
  return {pairs.begin(), pairs.end()};
}

std::optional<std::vector<RefusedFeature>> CheckRecord::verdict() const {
  const auto pairs = read_pairs(file_, verdict_head);
  if (!pairs) return std::nullopt;
  std::vector<RefusedFeature> refused;
  for (const auto& [name, fault] : *pairs) refused.push_back({name, fault});
  return refused;
}

void CheckRecord::conclude(const std::vector<RefusedFeature>& refused) {
  if (file_.empty()) return;
  Pairs pairs;
  for (const RefusedFeature& feature : refused) pairs.emplace_back(feature.name, feature.fault);
  write_pairs(file_, verdict_head, pairs);
  remove_cache(checks_file());
}

std::optional<std::string> CheckRecord::fault(const std::vector<RefusedFeature>& without,
                                              const std::string& check) const {
  const std::lock_guard lock(mutex_);
  const auto found = faults_.find(key_of(without, check));
  return found == faults_.end() ? std::nullopt : std::optional(found->second);
}

void CheckRecord::add(const std::vector<RefusedFeature>& without, const std::string& check,
                      const std::string& fault) {
  const std::lock_guard lock(mutex_);
  faults_[key_of(without, check)] = fault;
  if (file_.empty()) return;
  faults_.merge(stored());  // found by other processes
  write_pairs(checks_file(), checks_head, faults_);
}

// Tolerances are relative to the largest value of an output.
float tolerance(DType dtype) {
  return dtype == DType::f16 ? 4e-3f : dtype == DType::bf16 ? 3.2e-2f : 2e-5f;
}

struct Answer {
  Shape shape;
  DType dtype;
  std::vector<float> values;
};

// Runs the check on a device and returns its outputs. It has a state of its own, since whoever
// opens a device may be in any scope.
std::vector<Answer> answers(const Check& check, DType dtype,
                            const std::shared_ptr<Device>& device) {
  const ThreadStateScope state{ThreadState{}};
  const DeviceScope scope(device);
  std::vector<Answer> all;
  for (const Tensor& t : check.run(dtype)) all.push_back({t.shape(), t.dtype(), t.to_vector()});
  return all;
}

// `slack` is the error that is allowed; with 0, every bit must agree.
bool agrees(float got, float expected, float slack) {
  // An infinity or a NaN, whichever a formula meets first.
  if (slack != 0 && !std::isfinite(expected)) return !std::isfinite(got);
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (slack == 0) return std::memcmp(&got, &expected, sizeof got) == 0;
  return got == expected || std::abs(got - expected) <= slack;
}

// Describes the fault of an output; empty if there is none.
std::string fault_in(const Answer& got, const Answer& expected, float relative) {
  float most = 0;
  for (const float v : expected.values)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
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

Tasks tasks_for(const DeviceInfo& device) {
  Tasks tasks;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Check& check : checks())
      if ((!check.is_exact || dtype == DType::f32) && !(check.is_large && device.is_cpu) &&
          (check.in_bf16 || dtype != DType::bf16))
        tasks.push_back({&check, dtype});
  return tasks;
}

// Describes the fault of the device in one check; empty if there is none.
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
  } catch (const Unsupported&) {  // it becomes an error where it is used, not a wrong result
  } catch (const Error& e) {
    return fmt::format("{}: {}", task.name(), e.what());
  }
  return "";
}

// Reports that a task, by its number, begins (without a text), or that it has ended, and with which
// fault.
struct Watcher {
  std::function<void(size_t)> begins;
  std::function<void(size_t, const std::string& fault)> ends;
};

// f32 and 16 bits run side by side, as compiling takes most of the time.
void run_tasks(const Open& open, const Tasks& tasks, const Watcher& watcher) {
  const auto run = [&](bool halves) {
    const auto is_ours = [&](const Task& task) { return is_half(task.dtype) == halves; };
    if (std::none_of(tasks.begin(), tasks.end(), is_ours)) return;
    const std::shared_ptr<Device> device = Device::create(open());
    const std::shared_ptr<Device> oracle = Device::create(make_reference_backend());
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (!is_ours(tasks[i])) continue;
      watcher.begins(i);
      watcher.ends(i, run_check(tasks[i], device, oracle));
    }
  };
  auto halves = std::async(std::launch::async, run, true);
  run(false);
  halves.get();
}

// The known and the new results of checks of a device without some features.
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

// Runs the tasks in a child process, which may crash or never end: that is a fault of the tasks
// that had begun. Returns false if this says nothing about the device, because the child did not
// reach a task or fell asleep: it has no threads of a driver that was loaded before it began.
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
  if (end.is_hung || (!has_begun && !end.failure.empty())) return false;
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

// Returns the features without which there are no faults: a single one if that is enough, in the
// order of least loss (DeviceInfo::features), otherwise the first ones together.
std::vector<RefusedFeature> refuse_faulty_features(const OpenWithout& open, const DeviceInfo& info,
                                                   double child_seconds, CheckRecord& record) {
  const Tasks all_tasks = tasks_for(info);
  const auto faults_without = [&](const std::vector<RefusedFeature>& without, const Tasks& tasks) {
    return find_faults([&] { return open(without); }, tasks, child_seconds, {record, without});
  };
  const std::vector<Fault> faults = faults_without({}, all_tasks);
  if (faults.empty()) return {};
  const std::string& first = faults.front().text;
  Tasks failed;
  for (const Fault& fault : faults) failed.push_back(fault.task);
  // The tasks that failed decide first.
  const auto mends = [&](const std::vector<RefusedFeature>& without) {
    return faults_without(without, failed).empty() && faults_without(without, all_tasks).empty();
  };
  for (const std::string& feature : info.features)
    if (mends({{feature, first}})) return {{feature, first}};
  std::vector<RefusedFeature> refused;
  for (const std::string& feature : info.features) {
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
  for (Fault& fault : find_faults(open, tasks_for(open()->info()), 0, {record, nothing}))
    texts.push_back(std::move(fault.text));
  return texts;
}

std::vector<RefusedFeature> refused_features(const std::string& file, const OpenWithout& open,
                                             const DeviceInfo& info, double child_seconds) {
  CheckRecord record(file);
  if (auto known = record.verdict()) return *known;
  std::vector<RefusedFeature> refused = refuse_faulty_features(open, info, child_seconds, record);
  record.conclude(refused);
  return refused;
}

}  // namespace rw
