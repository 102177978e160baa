// Plants faults into the reference backend; the self-check must find them, and the features from
// which they come.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <unistd.h>

#include "backends/open.h"
#include "backends/reference/reference_backend.h"
#include "backends/self_check.h"
#include "core/backend/unsupported.h"
#include "core/base/error.h"
#include "core/files/cache.h"
#include "core/files/child_process.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

// A fault of a call, which has run, and whose outputs may be changed.
using Fault = std::function<void(Backend&, const KernelCall&)>;

class FaultyBackend : public GuardBackend {
 public:
  explicit FaultyBackend(std::vector<Fault> faults, bool is_cpu = true)
      : GuardBackend(make_reference_backend(), false),
        faults_(std::move(faults)),
        info_(GuardBackend::info()) {
    info_.is_cpu = is_cpu;
  }
  const DeviceInfo& info() const override { return info_; }
  void run(const KernelCall& call) override {
    GuardBackend::run(call);
    for (const Fault& fault : faults_) fault(*this, call);
  }

 private:
  std::vector<Fault> faults_;
  DeviceInfo info_;
};

// Changes the elements of the last output of type T.
template <class T>
void change(Backend& backend, const KernelCall& call, DType dtype, auto&& body) {
  for (auto b = call.bindings.rbegin(); b != call.bindings.rend(); ++b) {
    if (b->access == Access::read || b->dtype != dtype) continue;
    std::vector<T> values(b->range.size / sizeof(T));
    if (values.empty()) return;
    backend.read(b->range, values.data());
    body(values);
    backend.write(b->range, values.data());
    return;
  }
}

Fault in_halves(std::function<void(std::vector<uint16_t>&)> body) {
  return [body](Backend& backend, const KernelCall& call) {
    change<uint16_t>(backend, call, DType::f16, body);
  };
}

Fault in_kernel(const char* kernel, std::function<void(std::vector<float>&)> body) {
  return [=](Backend& backend, const KernelCall& call) {
    if (call.kernel == kernel) change<float>(backend, call, DType::f32, body);
  };
}

// Like AMD's v_cvt_pkrtz_f16_f32: 65504 instead of infinity.
const Fault saturates = in_halves([](std::vector<uint16_t>& halves) {
  for (uint16_t& h : halves)
    if ((h & 0x7fff) == 0x7c00) h -= 1;
});

// The same instruction rounds toward zero.
const Fault truncates = [](Backend& backend, const KernelCall& call) {
  if (call.kernel != "copy" || call.bindings[0].dtype != DType::f32) return;
  std::vector<float> source(call.bindings[0].range.size / sizeof(float));
  backend.read(call.bindings[0].range, source.data());
  change<uint16_t>(backend, call, DType::f16, [&](std::vector<uint16_t>& halves) {
    for (size_t i = 0; i < std::min(halves.size(), source.size()); ++i) {
      const bool is_finite = (halves[i] & 0x7fff) < 0x7c00;
      if (is_finite && std::abs(from_half(halves[i])) > std::abs(source[i])) --halves[i];
    }
  });
};

// Like lavapipe of Mesa 26.1.6 with LLVM 21: one element of every eight is lost in some kernels.
const Fault loses_a_lane = [](Backend& backend, const KernelCall& call) {
  if (call.kernel != "layer_norm") return;
  change<uint16_t>(backend, call, DType::f16, [](std::vector<uint16_t>& halves) {
    for (size_t i = 5; i < halves.size(); i += 8) halves[i] = 0x7e00;
  });
};

const Fault flushes_denormals = in_halves([](std::vector<uint16_t>& halves) {
  for (uint16_t& h : halves)
    if ((h & 0x7c00) == 0) h &= 0x8000;
});

const Fault throws = [](Backend&, const KernelCall& call) {
  if (call.kernel == "attention") fail<DeviceError>("test", "the pipeline cannot be made");
};

// Like lavapipe of Mesa 26.1.6 on some CPUs: a kernel does not end.
const Fault never_ends = [](Backend&, const KernelCall& call) {
  for (volatile bool ended = call.kernel != "batch_norm"; !ended;) {
  }
};

// Like drivers with threads of their own, which a copy of the process does not have.
const Fault sleeps_in_child = [](Backend&, const KernelCall& call) {
  static const pid_t parent = ::getpid();
  while (::getpid() != parent && call.kernel == "matmul") ::pause();
};

const Fault crashes = [](Backend&, const KernelCall& call) {
  if (call.kernel == "conv2d") std::raise(SIGSEGV);
};

const Fault has_no_attention = [](Backend&, const KernelCall& call) {
  if (call.kernel == "attention") fail<Unsupported>("test", "needs subgroup shuffle");
};

const Fault forgets_the_last_row =
    in_kernel("matmul", [](std::vector<float>& values) { values.back() = 0; });
const Fault stops_early = in_kernel("reduce", [](std::vector<float>& values) {
  for (float& v : values) v = std::min(v, 32767.5f);
});

// A tanh that is made of exponentials gives NaN far out.
const Fault overflowing_tanh = in_kernel("unary", [](std::vector<float>& values) {
  for (float& v : values)
    if (v == 1) v = NAN;
});

// A device with these features, and faults that each come with one of them.
struct Faulty {
  std::vector<std::string> features = {"halves", "shuffle", "addresses"};
  std::vector<std::pair<std::string, Fault>> faults;  // an empty name: of no feature
  std::atomic<int> opened = 0;

  OpenWithout opener() {
    return [this](const std::vector<RefusedFeature>& without) -> std::unique_ptr<Backend> {
      ++opened;
      std::vector<Fault> there;
      for (const auto& [feature, fault] : faults)
        if (std::none_of(without.begin(), without.end(),
                         [&](const RefusedFeature& r) { return r.name == feature; }))
          there.push_back(fault);
      return std::make_unique<FaultyBackend>(there);
    };
  }
  DeviceInfo info() const {
    DeviceInfo info;
    info.features = features;
    info.is_cpu = true;
    return info;
  }
  std::vector<std::string> refused(double child_seconds = 0) {
    std::vector<std::string> names;
    for (const RefusedFeature& f : refused_features("", opener(), info(), child_seconds)) {
      INFO(f.fault);
      CHECK_FALSE(f.fault.empty());
      names.push_back(f.name);
    }
    return names;
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("self-check: planted faults are found and named") {
  const auto first_fault = [](const Fault& fault) {
    const auto faults =
        find_faults([&] { return std::make_unique<FaultyBackend>(std::vector<Fault>{fault}); });
    return faults.empty() ? "" : faults.front();
  };
  CHECK(find_faults(make_reference_backend).empty());
  CHECK(first_fault(saturates).starts_with("conversion to 16 bits: output 0: element 7"));
  CHECK(first_fault(truncates).starts_with("conversion to 16 bits"));
  CHECK(first_fault(flushes_denormals).starts_with("conversion to 16 bits"));
  CHECK(first_fault(loses_a_lane).starts_with("layer_norm in f16: output 0: element 5"));
  CHECK(first_fault(throws) == "attention in f32: [test] the pipeline cannot be made");
  CHECK(first_fault(has_no_attention).empty());
  CHECK(first_fault(forgets_the_last_row).starts_with("matmul in f32"));
  CHECK(first_fault(stops_early).starts_with("long loops"));
  CHECK(first_fault(overflowing_tanh).starts_with("functions far out in f32"));
}

TEST_CASE("self-check: faults of the large tiles of GPUs are found") {
  // Returns a fault that changes an element in the middle of results that have at least so many
  // bytes.
  const auto spoils = [](const char* kernel, DType dtype, uint64_t least) -> Fault {
    return [=](Backend& backend, const KernelCall& call) {
      if (call.kernel != kernel || call.bindings[0].dtype != dtype) return;
      if (call.bindings.back().range.size < least) return;
      if (dtype == DType::f32)
        change<float>(backend, call, dtype,
                      [](auto& values) { values[values.size() / 2] += 1e4f; });
      else
        change<uint16_t>(backend, call, dtype,
                         [](auto& values) { values[values.size() / 2] ^= 0x4000; });
    };
  };
  const std::vector<Fault> planted = {spoils("matmul", DType::f32, 200 << 10),
                                      spoils("conv2d_wgrad", DType::f32, 65536),
                                      spoils("conv2d", DType::bf16, 100 << 10)};
  const auto faults = find_faults([&] { return std::make_unique<FaultyBackend>(planted, false); });
  const auto has = [&](const char* head) {
    return std::any_of(faults.begin(), faults.end(),
                       [&](const std::string& fault) { return fault.starts_with(head); });
  };
  CHECK(has("large matmul in f32: output 0: element "));
  CHECK(has("large conv2d in f32: output 2: element "));
  CHECK(has("large conv2d in bf16: output 0: element "));
}

TEST_CASE("self-check: what a fault comes from is refused, and nothing else") {
  CHECK(Faulty{}.refused() == Names{});
  CHECK(Faulty{.faults = {{"halves", loses_a_lane}}}.refused() == Names{"halves"});
  CHECK(Faulty{.faults = {{"addresses", forgets_the_last_row}}}.refused() == Names{"addresses"});
  // Wrong conversions that no other refusal mends cost the device its 16-bit floats, but not f32.
  CHECK(Faulty{.features = {"halves", "shuffle", "16-bit floats"},
               .faults = {{"16-bit floats", truncates}}}
            .refused() == Names{"16-bit floats"});
  // Two faults at once cost all features up to the last of them.
  CHECK(Faulty{.faults = {{"halves", saturates}, {"shuffle", throws}}}.refused() ==
        Names{"halves", "shuffle"});
}

TEST_CASE("self-check: in a child, a crash and a kernel that does not end are faults like others") {
  constexpr double seconds = 2;  // seconds of a core: no check takes a tenth of it
  CHECK(Faulty{}.refused(seconds) == Names{});
  CHECK(Faulty{.faults = {{"shuffle", loses_a_lane}}}.refused(seconds) == Names{"shuffle"});
  CHECK(Faulty{.faults = {{"shuffle", crashes}}}.refused(seconds) == Names{"shuffle"});
  CHECK(Faulty{.faults = {{"halves", never_ends}}}.refused(seconds) == Names{"halves"});
  for (int i = 0; i < rounds(0, 1); ++i) {           // it waits for half a minute
    sleeps_in_child(*make_reference_backend(), {});  // tells it who the parent is
    CHECK(Faulty{.faults = {{"", sleeps_in_child}}}.refused(seconds) == Names{});
  }
  const auto error = [&](const Fault& fault) {
    return message_of<DeviceError>([&] { Faulty{.faults = {{"", fault}}}.refused(seconds); });
  };
  CHECK(error(crashes).find("conv2d in f") != std::string::npos);
  CHECK(error(crashes).find(": it ended with Segmentation fault") != std::string::npos);
  CHECK(error(never_ends).find("batch_norm in f16: it did not end in 2 s") != std::string::npos);
}

TEST_CASE("self-check: a device that is wrong in any case is an error that says how") {
  try {
    Faulty{.faults = {{"", truncates}}}.refused();
    FAIL("no error");
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    CHECK(text.find("[self-check]") == 0);
    CHECK(text.find("conversion to 16 bits: output 0") != std::string::npos);
  }
}

TEST_CASE("self-check: the verdict is kept, and made again where it is broken") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  Faulty device{.faults = {{"halves", loses_a_lane}}};
  const auto verdict = [&] {
    device.opened = 0;
    const auto refused = refused_features("self-check-test", device.opener(), device.info());
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].name == "halves");
    CHECK(refused[0].fault.starts_with("layer_norm in f16"));
    return device.opened.load();
  };
  // F32 and f16 with the fault, the failed check without it, all checks without it.
  CHECK(verdict() == 5);
  CHECK(verdict() == 0);
  std::ofstream(folder / "self-check-test", std::ios::binary | std::ios::app) << "more";
  CHECK(verdict() == 5);
  std::ofstream(folder / "self-check-test", std::ios::binary).flush();
  CHECK(verdict() == 5);
  CHECK(verdict() == 0);
}

TEST_CASE("self-check: a process that is killed has done its part, the next one goes on") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  std::mutex mutex;
  std::map<std::string, int> seen;  // kernels of f32's checks, which run one after the other
  const auto check = [&](const Fault& fault) {
    seen.clear();
    const Fault see = [&](Backend&, const KernelCall& call) {
      const std::lock_guard lock(mutex);
      if (call.bindings[0].dtype == DType::f32) ++seen[std::string(call.kernel)];
    };
    Faulty device{.faults = {{"", see}, {"", fault}}};
    return refused_features("self-check-test", device.opener(), device.info());
  };
  const Fault is_killed = [](Backend&, const KernelCall& call) {
    if (call.kernel == "attention" && call.bindings[0].dtype == DType::f32) std::raise(SIGKILL);
  };
  const ChildEnd end = run_in_child([&](const Send&) { check(is_killed); }, [](auto&) {}, 60);
  CHECK(end.failure == "it ended with Killed");
  const Fault none = [](Backend&, const KernelCall&) {};
  CHECK(check(none).empty());
  CHECK(seen["conv2d"] == 0);  // the killed process has proved it
  CHECK(seen["attention"] > 0);
  CHECK(check(none).empty());
  CHECK(seen.empty());  // only the verdict is read
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_SUITE_END();

TEST_CASE("self-check: what this device uses has no faults") {
  try {
    CHECK(find_faults([] { return open_backend("vulkan"); }) == std::vector<std::string>{});
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
  }
}

}  // namespace rw::test
