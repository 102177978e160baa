// Tuned choices: their names, the classes of calls, the ways that a device has, the file that keeps
// them, and runs with a choice.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "backends/open.h"
#include "backends/reference/reference_backend.h"
#include "backends/tune.h"
#include "backends/vulkan/device/shader_table.h"
#include "backends/vulkan/device/tuning_file.h"
#include "backends/vulkan/matrix/matrix.h"
#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/matrix/product.h"
#include "backends/vulkan/pipelines/profile.h"
#include "backends/vulkan/tuning/tuner.h"
#include "backends/vulkan/tuning/ways.h"
#include "core/base/environment.h"
#include "core/memory/default_device.h"
#include "ops/network/conv.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "planner/dry_run.h"
#include "tests/fixtures/compare_kernels.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

using kernels::Conv2dParams;
using kernels::MatmulParams;
using vulkan::Caps;
using vulkan::Choice;
using vulkan::Product;

Caps cpu_driver() {
  Caps caps;
  caps.name = "a CPU driver";
  caps.uuid = "00ff";
  caps.is_cpu = true;
  caps.features = vulkan::feature::shuffle | vulkan::feature::texels;
  caps.subgroup_size = caps.workgroup_size = 8;
  caps.max_threads = 1024;
  caps.shared_bytes = 32768;
  caps.max_groups = {65535, 65535, 65535};
  caps.max_range = caps.max_block = caps.heap_bytes = uint64_t{1} << 30;
  return caps;
}

Caps gpu() {
  Caps caps = cpu_driver();
  caps.name = "a GPU";
  caps.is_cpu = false;
  caps.subgroup_size = 32;
  caps.features = vulkan::feature::shuffle | vulkan::feature::cooperative;
  caps.matrices.f16 = {16, 16, 16};
  return caps;
}

template <class Params>
Product make_product(const char* kernel, const Params& p, DType in, DType out) {
  Product made{.kernel = kernel, .bindings = {}, .params = {}};
  for (Binding& b : made.bindings) b.dtype = in;
  made.bindings[2].dtype = out;
  const auto bytes = std::as_bytes(std::span(&p, 1));
  made.params.assign(bytes.begin(), bytes.end());
  return vulkan::parse_product(vulkan::line_of(made.call()));
}

Product gemm(uint32_t m, uint32_t n, uint32_t k, DType t = DType::f32, bool transposed = false) {
  MatmulParams p{};
  p.m = m, p.n = n, p.k = k, p.batch[0] = p.batch[1] = 1, p.alpha = 1;
  p.a_row = k, p.a_col = 1, p.c_row = n;
  (transposed ? p.b_col : p.b_row) = transposed ? k : n;
  (transposed ? p.b_row : p.b_col) = 1;
  return make_product("matmul", p, t, t);
}

Product conv(const char* kernel, uint32_t size, uint32_t in, uint32_t out, uint32_t taps,
             uint32_t groups = 1) {
  Conv2dParams p{};
  p.batch = 2, p.in_h = p.in_w = p.out_h = p.out_w = size, p.in_c = in, p.out_c = out;
  p.kernel_h = p.kernel_w = taps, p.pad_h = p.pad_w = taps / 2, p.groups = groups;
  p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
  return make_product(kernel, p, DType::f32, DType::f32);
}

std::vector<Product> some_products() {
  std::vector<Product> all = {gemm(1, 1, 1), gemm(100, 70, 300), gemm(64, 96, 2048, DType::f16),
                              gemm(7, 33, 65, DType::f32, true), gemm(3, 5, 70000)};
  for (const char* kernel : {"conv2d", "conv2d_dgrad", "conv2d_wgrad"}) {
    all.push_back(conv(kernel, 12, 8, 24, 3));
    all.push_back(conv(kernel, 9, 3, 5, 3));
    all.push_back(conv(kernel, 10, 16, 8, 1));
    all.push_back(conv(kernel, 8, 8, 8, 3, 8));
    all.push_back(conv(kernel, 8, 6, 6, 3, 2));
  }
  return all;
}

TEST_CASE("tuning: choices have names" * doctest::test_suite("host")) {
  for (const bool is_cpu : {false, true})
    for (const Choice& plain : vulkan::plain_choices(is_cpu)) {
      CHECK(vulkan::parse_choice(name(plain)) == plain);
      for (const Choice& c : vulkan::with_panels(plain)) {
        CHECK(vulkan::parse_choice(name(c)) == c);
        for (const Choice& d : vulkan::with_parts(c)) CHECK(vulkan::parse_choice(name(d)) == d);
      }
    }
  CHECK(name(*vulkan::parse_choice("subgroup4-left-split8")) == "subgroup4-left-split8");
  CHECK(vulkan::parse_choice("") == Choice{});
  CHECK(vulkan::parse_choice("tiled").has_value());
  for (const char* wrong : {"fast", "tiled65", "tiled064", "tiled64-", "naive4", "subgroup-split0",
                            "tiled64-split9999", "tiled64 ", "subgroup4-split2-left", "-split2"})
    CHECK_MESSAGE(!vulkan::parse_choice(wrong), wrong);
  CHECK(message_of<ValueError>([] { vulkan::force_choice("fast"); }).find("'fast'") !=
        std::string::npos);
}

TEST_CASE("tuning: calls of nearly one size and layout are one class" *
          doctest::test_suite("host")) {
  const auto key = [](const Product& p) { return vulkan::class_of(p.call()); };
  CHECK(key(gemm(1024, 768, 512)) == "gemm f32-f32 nn a8 b8 c8 m1024 n1024 k512 x1");
  CHECK(key(gemm(1000, 1000, 504)) == key(gemm(1024, 1024, 512)));
  CHECK(key(gemm(1024, 1024, 512)) != key(gemm(2048, 1024, 512)));
  CHECK(key(gemm(1024, 1024, 512)) != key(gemm(1023, 1024, 511)));
  CHECK(key(gemm(64, 64, 64)) != key(gemm(64, 64, 64, DType::f16)));
  CHECK(key(gemm(64, 64, 64)) != key(gemm(64, 64, 64, DType::f32, true)));
  // A 1x1 convolution is a product of 200 pixels.
  CHECK(key(conv("conv2d", 10, 16, 8, 1)) == key(gemm(200, 8, 16, DType::f32, true)));
  CHECK(key(conv("conv2d", 12, 8, 24, 3)) == "conv2d f32-f32 k3x3 s1x1 x8 y8 pixels256 in8 out32");
  CHECK(key(conv("conv2d_wgrad", 8, 8, 8, 3, 8)).find("depthwise") != std::string::npos);
  std::set<std::string> keys;
  for (const char* kernel : {"conv2d", "conv2d_dgrad", "conv2d_wgrad"})
    keys.insert(key(conv(kernel, 12, 8, 24, 3)));
  CHECK(keys.size() == 3);
  CHECK(vulkan::class_of({.kernel = "softmax"}).empty());
}

TEST_CASE("tuning: every device has a way, and no way twice" * doctest::test_suite("host")) {
  Caps bare = cpu_driver();
  bare.features = 0;
  for (const Caps& caps : {cpu_driver(), gpu(), bare})
    for (const Product& p : some_products()) {
      const KernelCall calls[] = {p.call()};
      const std::vector<Choice> ways = vulkan::admitted(calls, caps);
      CHECK(!ways.empty());
      std::set<std::string> names;
      for (const Choice& c : ways) names.insert(name(c));
      CHECK(names.size() == ways.size());
      // The device can run all passes, by the cost model and by any choice.
      for (const Choice& c : ways) {
        vulkan::Passes passes;
        add_product(passes, caps, p.call(), c);
        for (const vulkan::Pass& pass : passes.list())
          CHECK_MESSAGE(vulkan::may_run(pass.kernel, caps), pass.kernel);
      }
    }
  const Product large = gemm(512, 512, 512);
  const KernelCall calls[] = {large.call()};
  CHECK(vulkan::admitted(calls, cpu_driver()).size() > 5);
  CHECK(vulkan::admitted(calls, gpu()).size() > 5);
  CHECK(vulkan::admitted(calls, bare).size() == 1);
  // The cost model's choice has the name of its way.
  CHECK(name(vulkan::Ways(calls, cpu_driver()).standard()) == "subgroup8");
  CHECK(name(vulkan::Ways(calls, gpu()).standard()).starts_with("tiled"));
  CHECK(name(vulkan::Ways(calls, bare).standard()) == "naive");
}

TEST_CASE("tuning: sums of many results are not split without end" * doctest::test_suite("host")) {
  const Product p = gemm(8192, 8192, 8192);
  vulkan::Passes passes;
  add_product(passes, cpu_driver(), p.call(), *vulkan::parse_choice("subgroup8-split64"));
  CHECK(passes.workspace_bytes <= uint64_t{1} << 30);
}

TEST_CASE("tuning: products are lines" * doctest::test_suite("host")) {
  for (const Product& p : some_products()) {
    const std::string line = vulkan::line_of(p.call());
    CHECK(vulkan::line_of(vulkan::parse_product(line).call()) == line);
  }
  CHECK(gemm(10, 20, 30).bindings[1].range.size == 20 * 30 * 4);
  const std::string good = vulkan::line_of(gemm(10, 20, 30).call());
  const auto fails = [](const std::string& line) {
    CHECK_THROWS_AS(vulkan::parse_product(line), ValueError);
  };
  fails("");
  fails("softmax f32 f32 f32 1 2 3");
  fails(good.substr(0, good.rfind(' ')));
  fails(good + " 7");
  fails(good + " seven");
  MatmulParams p;
  std::memcpy(&p, gemm(10, 20, 30).params.data(), sizeof p);
  p.a_row = UINT32_MAX;
  CHECK_THROWS_AS(make_product("matmul", p, DType::f32, DType::f32), ValueError);
  CHECK_THROWS_AS(conv("conv2d", 8, 6, 6, 3, 4), ValueError);
}

vulkan::Tuning some_tuning() {
  return {"2026-11-24 07:30 UTC",
          {{"gemm f32-f32 nn a4 b4 c4 m128 n64 k256 x1", *vulkan::parse_choice("subgroup4-split2")},
           {"conv2d f32-f32 k3x3 s1x1 x8 y8 pixels256 in8 out32", *vulkan::parse_choice("naive")}},
          12'000'000'000,
          13'000'000'000};
}

TEST_CASE("tuning: a device's file, whole or not at all" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  const Without on = with("tuning");
  const Caps caps = cpu_driver();
  CHECK(vulkan::load_tuning(caps) == vulkan::Tuning{});
  vulkan::save_tuning(caps, some_tuning());
  CHECK(vulkan::load_tuning(caps) == some_tuning());
  {
    const Without off("tuning");
    CHECK(vulkan::load_tuning(caps) == vulkan::Tuning{});
  }
  // Another driver, or other features, have another file, and do not accept this one.
  Caps newer = caps;
  newer.driver_version = "Mesa 99";
  CHECK(vulkan::load_tuning(newer) == vulkan::Tuning{});
  namespace fs = std::filesystem;
  const fs::path file = folder / vulkan::tuning_file(caps).c_str();
  fs::copy_file(file, folder / vulkan::tuning_file(newer).c_str());
  CHECK(vulkan::load_tuning(newer) == vulkan::Tuning{});

  std::string whole(fs::file_size(file), '\0');
  std::ifstream(file).read(whole.data(), static_cast<std::streamsize>(whole.size()));
  const auto broken = [&](const std::string& text) {
    std::ofstream(file) << text;
    CHECK(vulkan::load_tuning(caps) == vulkan::Tuning{});
  };
  broken("");
  broken(whole.substr(0, whole.size() / 2));
  broken("[]");
  std::string other = whole;
  other.replace(other.find("naive"), 5, "quick");
  broken(other);
  for (const char* speed : {"0", "-1", "1e300", "\"fast\""}) {
    other = whole;
    broken(other.replace(other.find("12000000000"), 11, speed));
  }
  std::ofstream(file) << whole;
  CHECK(vulkan::load_tuning(caps) == some_tuning());
  CHECK(vulkan::forget_tuning(caps));
  CHECK(!vulkan::forget_tuning(caps));
}

TEST_CASE("tuning: profiles hold it" * doctest::test_suite("host")) {
  Caps caps = cpu_driver();
  CHECK(vulkan::to_json(caps).find("tuning") == std::string::npos);
  caps.tuning = some_tuning();
  const std::string text = vulkan::to_json(caps);
  CHECK(vulkan::parse_caps(text, "a file").tuning == caps.tuning);
  CHECK(vulkan::to_info(caps).tuning == "2 choices of 2026-11-24 07:30 UTC");
  std::string wrong = text;
  wrong.replace(wrong.find("subgroup4"), 9, "subgroup5");
  CHECK(message_of<FileError>([&] { vulkan::parse_caps(wrong, "a file"); }).find("subgroup5") !=
        std::string::npos);
}

// ---- on a device --------------------------------------------------------------------------------

// Runs products and convolutions with gradients, of sizes for which all ways have work to do.
std::vector<float> product_outputs() {
  const auto leaf = [](const Shape& shape, uint32_t seed) {
    return tensor(values(static_cast<size_t>(shape.numel()), -1, 1, seed), shape)
        .set_requires_grad();
  };
  const Tensor x = leaf({2, 14, 14, 16}, 1), w = leaf({24, 3, 3, 16}, 2), a = leaf({24, 136}, 3);
  const Tensor y = matmul(reshape(conv2d(x, w, {.padding = 1}), {-1, 24}), a);
  sum(y * y).backward();
  std::vector<float> all = y.to_vector();
  for (const Tensor& t : {x, w, a})
    for (const float v : t.grad().to_vector()) all.push_back(v);
  default_device()->end_step();
  return all;
}

struct TunedRun {
  std::vector<float> values;
  MemoryReport memory;
};

TunedRun run_on(const std::string& device) {
  const auto opened = Device::create(open_backend(device));
  const DeviceScope scope(opened);
  TunedRun run;
  run.values = product_outputs();
  run.memory = opened->memory_report();
  return run;
}

// Chooses the last way for each of the products, so that none runs as in the cost model.
vulkan::Tuning odd_tuning(const Caps& caps, std::span<const std::string> lines) {
  vulkan::Tuning tuning{"a test", {}};
  for (const std::string& line : lines) {
    const Product p = vulkan::parse_product(line);
    const KernelCall calls[] = {p.call()};
    const std::vector<Choice> ways = vulkan::admitted(calls, caps);
    if (ways.size() > 1) tuning.choices[vulkan::class_of(p.call())] = ways.back();
  }
  return tuning;
}

TEST_CASE("tuning: odd choices are right, repeat their bits, and are predicted to the byte") {
  const Without proved("self-check");
  if (!has_vulkan()) return;
  const Caps caps = vulkan::parse_caps(device_profile("vulkan"), "here");
  const auto lines = std::make_shared<std::vector<std::string>>();
  dry_run(open_listening("vulkan", lines), [] { product_outputs(); });
  REQUIRE(lines->size() >= 6);
  const TunedRun plain = run_on("vulkan"), oracle = run_on("reference");

  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  const Without on = with("tuning");
  const vulkan::Tuning tuning = odd_tuning(caps, *lines);
  if (tuning.choices.empty()) return;  // the driver has only one way (SwiftShader)
  vulkan::save_tuning(caps, tuning);
  CHECK(open_backend("vulkan")->info().tuning.find("a test") != std::string::npos);
  const TunedRun tuned = run_on("vulkan");
  CHECK(tuned.values == run_on("vulkan").values);
  CHECK(tuned.values != plain.values);  // other orders of sums
  REQUIRE(tuned.values.size() == oracle.values.size());
  float most = 0;
  for (const float v : oracle.values) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < oracle.values.size(); ++i)
    REQUIRE(tuned.values[i] == doctest::Approx(oracle.values[i]).epsilon(1e-4).scale(most));

  const std::string file = folder / "profile.json";
  std::ofstream(file) << device_profile("vulkan");
  for (const std::string& device : {std::string("dry:vulkan"), "dry:" + file}) {
    const Without off("tuning", device != "dry:vulkan");  // a profile has its own
    const Forecast forecast = dry_run(open_backend(device), [] { product_outputs(); });
    CHECK(forecast.memory.peak == tuned.memory.peak);
    CHECK(forecast.memory.peak_by_purpose == tuned.memory.peak_by_purpose);
    CHECK(forecast.memory.reserved == tuned.memory.reserved);
  }
  // The workspaces differ; with GPUs' tiles this does not show in the peak.
  if (caps.is_cpu) CHECK(plain.memory.peak_by_purpose != tuned.memory.peak_by_purpose);
}

// CPU drivers take minutes to compile the tiles of GPUs.
bool may_measure() {
  return !env_flag("REWIND_LIKE_GPU") && has_vulkan();
}

TEST_CASE("tuning: what a program asks for is measured and kept") {
  if (!may_measure()) return;
  const TemporaryFolder folder;
  const std::string log = folder / "products";
  {
    const Env logs("REWIND_TUNE_LOG", log.c_str());
    dry_run(open_backend("dry:vulkan"), [] { product_outputs(); });
  }
  const std::vector<std::string> lines = read_tune_log(log);
  REQUIRE(lines.size() >= 6);
  const std::string device = "vulkan:uuid=" + open_backend("vulkan")->info().uuid;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  const Without on = with("tuning");
  const Without proved("self-check");
  std::vector<TunedClass> found;
  const auto each = [&](const TunedClass& c) { found.push_back(c); };
  TuneOptions options{.device = device, .only = "gemm", .quick = true, .measures = false};
  CHECK(tune(options, lines, each) == 0);
  REQUIRE(found.size() == 3);
  for (const TunedClass& c : found) CHECK((c.ways > 0 && c.choice == c.standard));
  options.measures = true;
  const size_t kept = tune(options, lines, each);
  REQUIRE(found.size() == 6);
  size_t faster = 0;
  for (size_t i = 3; i < 6; ++i) {
    CHECK((found[i].seconds > 0 && found[i].wrong.empty() && found[i].fault.empty()));
    faster += found[i].choice != found[i].standard;
  }
  CHECK(kept == faster);
  CHECK((open_backend(device)->info().tuning.empty()) == (kept == 0));
  CHECK(forget_tuning(device));
  CHECK(message_of<DeviceError>([] { forget_tuning("cpu"); }).find("[tune]") == 0);
  CHECK_THROWS_AS(read_tune_log(folder / "nothing"), FileError);
}

// A backend whose kernels of one family give wrong results.
class WrongTiles : public GuardBackend {
 public:
  explicit WrongTiles(std::unique_ptr<Backend> inner) : GuardBackend(std::move(inner), false) {}
  void run(const KernelCall& call) override {
    GuardBackend::run(call);
    const auto& passes = static_cast<const vulkan::Passes&>(**call.preparation);
    if (passes.list().front().kernel == "gemm_naive") return;
    float value = 1e6f;
    write({call.bindings[2].range.block, 0, 4}, &value);
  }
};

TEST_CASE("tuning: ways that are wrong are refused by name") {
  if (!may_measure()) return;
  const Caps caps = vulkan::parse_caps(device_profile("vulkan"), "here");
  WrongTiles device(open_backend("vulkan"));
  const Product products[] = {gemm(24, 40, 64)};
  const vulkan::Verdict verdict = vulkan::measure(device, caps, products, 1e-4, 3);
  CHECK((verdict.choice == verdict.standard || name(verdict.choice) == "naive"));
  for (const std::string& way : verdict.wrong) CHECK(way != "naive");
}

}  // namespace

}  // namespace rw::test
