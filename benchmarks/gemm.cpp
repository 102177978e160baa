// Rates of the matrix kernels beside OpenBLAS in the same run, as a Markdown table.
#include <fmt/format.h>
#ifdef REWIND_OPENBLAS
#include <cblas.h>
#endif

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/program.h"
#include "rewind/backends/open.h"
#include "shaders/params.h"

namespace {

using namespace rw;
using kernels::Conv2dParams;
using kernels::MatmulParams;

int repeats = 10;
bool cpu_time = false;

// Wall seconds, or seconds of all processors that this process used.
double now() {
  if (cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of several runs: on shared machines the others measure the neighbours.
double best_time(const std::function<void()>& f) {
  f();  // compiles
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

class Runner {
 public:
  explicit Runner(const std::string& name) : backend_(open_backend(name)) {}
  Backend& backend() { return *backend_; }

  // Seconds of one kernel with fresh operands of these element counts; the last is written.
  template <class Params>
  double time(const char* kernel, const std::vector<std::pair<size_t, DType>>& operands,
              const Params& params, std::vector<uint32_t> variant = {}, uint32_t threads = 1) {
    std::vector<Binding> bindings;
    for (const auto& [count, type] : operands)
      bindings.push_back({filled(count, type), type, Access::read});
    bindings.back().access = Access::write;
    KernelCall call{.kernel = kernel,
                    .bindings = bindings,
                    .params = std::as_bytes(std::span(&params, 1)),
                    .threads = {threads, 1, 1},
                    .variant = variant,
                    .flops = 0,
                    .workspace = {}};
    const uint64_t scratch = backend_->workspace_bytes(call);
    if (scratch) call.workspace = {backend_->allocate_block(scratch), 0, scratch};
    const double seconds = best_time([&] {
      backend_->run(call);
      backend_->synchronize();
    });
    for (const Binding& b : bindings) backend_->free_block(b.range.block);
    if (scratch) backend_->free_block(call.workspace.block);
    return seconds;
  }

 private:
  BufferRange filled(size_t count, DType type) {
    const size_t bytes = (count * size_of(type) + 15) / 16 * 16;
    const std::vector<uint16_t> ones(bytes / 2, 0x3c00);  // 1.0 in f16, 0.0078 in f32
    const BufferRange range{backend_->allocate_block(bytes), 0, bytes};
    backend_->write(range, ones.data());
    return range;
  }

  std::unique_ptr<Backend> backend_;
};

struct Gemm {
  uint32_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  double flops() const { return 2.0 * m * n * k; }
};

double gemm_time(Runner& device, const Gemm& g, DType t) {
  MatmulParams p{.offset = {},
                 .m = g.m,
                 .n = g.n,
                 .k = g.k,
                 .batch = {1, 1},
                 .a_row = g.k,
                 .a_col = 1,
                 .b_row = g.n,
                 .b_col = 1,
                 .c_row = g.n,
                 .a_batch = {},
                 .b_batch = {},
                 .c_batch = {},
                 .alpha = 1,
                 .beta = 0};
  if (g.a_transposed) p.a_row = 1, p.a_col = g.m;
  if (g.b_transposed) p.b_row = 1, p.b_col = g.k;
  const size_t m = g.m, n = g.n, k = g.k;
  return device.time("matmul", {{m * k, t}, {k * n, t}, {m * n, t}}, p);
}

// Seconds of OpenBLAS sgemm; nothing without OpenBLAS.
std::optional<double> blas_time([[maybe_unused]] const Gemm& g) {
#ifdef REWIND_OPENBLAS
  std::vector<float> a(size_t{g.m} * g.k, 1), b(size_t{g.k} * g.n, 1), c(size_t{g.m} * g.n);
  return best_time([&] {
    cblas_sgemm(CblasRowMajor, g.a_transposed ? CblasTrans : CblasNoTrans,
                g.b_transposed ? CblasTrans : CblasNoTrans, int(g.m), int(g.n), int(g.k), 1,
                a.data(), int(g.a_transposed ? g.m : g.k), b.data(),
                int(g.b_transposed ? g.k : g.n), 0, c.data(), int(g.n));
  });
#else
  return std::nullopt;
#endif
}

void gemm_table(Runner& device) {
  fmt::print(
      "\n## GEMM, GF/s (ratio to OpenBLAS sgemm)\n\n| m x n x k | layout | OpenBLAS | f32 | f16 |\n"
      "|---|---|---|---|---|\n");
  const Gemm cases[] = {{1024, 1024, 1024},
                        {1024, 1024, 1024, false, true},
                        {1024, 1024, 1024, true, false},
                        {1000, 1003, 997},
                        {1000, 1003, 997, false, true},
                        {1000, 1003, 997, true, false},
                        {2048, 768, 768, false, true},
                        {256, 256, 256},
                        {64, 1000, 512, false, true}};
  for (const Gemm& g : cases) {
    const auto blas = blas_time(g);
    const auto cell = [&](double seconds) {
      const std::string rate = fmt::format("{:.1f}", g.flops() / seconds * 1e-9);
      return blas ? fmt::format("{} ({:.3f})", rate, *blas / seconds) : rate;
    };
    fmt::print("| {} x {} x {} | {}{} | {} | {} | {} |\n", g.m, g.n, g.k,
               g.a_transposed ? 'T' : 'N', g.b_transposed ? 'T' : 'N',
               blas ? fmt::format("{:.1f}", g.flops() / *blas * 1e-9) : "not installed",
               cell(gemm_time(device, g, DType::f32)), cell(gemm_time(device, g, DType::f16)));
    std::fflush(stdout);
  }
}

void conv_table(Runner& device, uint32_t batch) {
  fmt::print(
      "\n## 3x3 convolution, batch {}, GF/s (time over that of the GEMM pixels x out x 9 in)\n\n"
      "| image, channels, stride | type | GEMM | forward | dgrad | wgrad "
      "|\n|---|---|---|---|---|---|\n",
      batch);
  struct Layer {
    uint32_t size, in, out, stride;
  };
  for (const Layer& l : {Layer{32, 3, 16, 1},
                         {32, 16, 16, 1},
                         {32, 16, 32, 2},
                         {16, 32, 32, 1},
                         {16, 32, 64, 2},
                         {8, 64, 64, 1}}) {
    const uint32_t out = l.size / l.stride;
    const Conv2dParams p{.offset = {},
                         .batch = batch,
                         .in_h = l.size,
                         .in_w = l.size,
                         .in_c = l.in,
                         .out_h = out,
                         .out_w = out,
                         .out_c = l.out,
                         .kernel_h = 3,
                         .kernel_w = 3,
                         .stride_h = l.stride,
                         .stride_w = l.stride,
                         .pad_h = 1,
                         .pad_w = 1,
                         .dilation_h = 1,
                         .dilation_w = 1,
                         .groups = 1};
    const Gemm g{batch * out * out, l.out, 9 * l.in};
    const size_t x = size_t{batch} * l.size * l.size * l.in, w = size_t{9} * l.in * l.out;
    const size_t y = size_t{batch} * out * out * l.out;
    for (const DType t : {DType::f32, DType::f16}) {
      const double gemm = gemm_time(device, g, t);
      const double forward = device.time("conv2d", {{x, t}, {w, t}, {y, t}}, p);
      const double dgrad = device.time("conv2d_dgrad", {{y, t}, {w, t}, {x, t}}, p);
      const double wgrad = device.time("conv2d_wgrad", {{x, t}, {y, t}, {w, DType::f32}}, p);
      const auto cell = [&](double s) {
        return fmt::format("{:.1f} ({:.2f})", g.flops() / s * 1e-9, s / gemm);
      };
      fmt::print("| {}x{}, {} -> {}, {} | {} | {:.1f} | {} | {} | {} |\n", l.size, l.size, l.in,
                 l.out, l.stride, name(t), g.flops() / gemm * 1e-9, cell(forward), cell(dgrad),
                 cell(wgrad));
      std::fflush(stdout);
    }
  }
}

void memory_table(Runner& device) {
  constexpr uint32_t n = 1 << 24;
  std::vector<float> from(n, 1), to(n);
  const double copy = best_time([&] { std::memcpy(to.data(), from.data(), n * sizeof(float)); });
  fmt::print(
      "\n## Elementwise, GB/s read and written\n\n| what | GB/s |\n|---|---|\n"
      "| memcpy, one thread | {:.1f} |\n",
      8.0 * n / copy * 1e-9);
  kernels::BinaryParams p{};
  p.n = n;
  for (const DType t : {DType::f32, DType::f16}) {
    const double add = device.time("binary", {{n, t}, {n, t}, {n, t}}, p, {0, 1}, n / REWIND_FLAT);
    fmt::print("| add, {} | {:.1f} |\n", name(t), 3.0 * n * size_of(t) / add * 1e-9);
  }
}

void overhead_table(Runner& device) {
  Backend& b = device.backend();
  const kernels::FillParams p{.offset = {}, .n = 8, .bits = 0};
  const BufferRange range{b.allocate_block(256), 0, 256};
  const Binding y{range, DType::f32, Access::write};
  const KernelCall call{.kernel = "fill",
                        .bindings = {&y, 1},
                        .params = std::as_bytes(std::span(&p, 1)),
                        .threads = {1, 1, 1},
                        .variant = {},
                        .flops = 0,
                        .workspace = {}};
  const auto dispatches = [&](int count) {
    return best_time([&] {
      for (int i = 0; i < count; ++i) b.run(call);
      b.synchronize();
    });
  };
  const double many = dispatches(1000) / 1000, one = dispatches(1);
  fmt::print(
      "\n## Overheads, us\n\n| what | us |\n|---|---|\n| a dispatch among 1000 dependent ones | "
      "{:.1f} |\n"
      "| one dispatch, submitted and waited for | {:.1f} |\n",
      many * 1e6, one * 1e6);
  b.free_block(range.block);
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

void run(int argc, char** argv, const std::string& device_name, const std::string& only,
         uint32_t batch) {
  Runner device(device_name);
  const DeviceInfo& info = device.backend().info();
  fmt::print("# Kernel rates\n\n- device: {}, {}\n- processor: {}\n- command: `", info.name,
             info.driver, cpu_model());
  for (int i = 0; i < argc; ++i) fmt::print("{}{}", i ? " " : "", argv[i]);
  fmt::print("`\n- fastest of {} runs each{}\n", repeats,
             cpu_time ? ", seconds are processor seconds" : "");
#ifdef REWIND_OPENBLAS
  fmt::print("- OpenBLAS: {}, {} threads\n", openblas_get_config(), openblas_get_num_threads());
#endif
  if (only.empty() || only == "gemm") gemm_table(device);
  if (only.empty() || only == "conv") conv_table(device, batch);
  if (only.empty() || only == "memory") memory_table(device);
  if (only.empty() || only == "overhead") overhead_table(device);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Rates of matmul, convolution and elementwise kernels beside OpenBLAS.");
  std::string device_name = "vulkan", only;
  uint32_t batch = 128;
  app.add_option("--device", device_name, "backend and device")->capture_default_str();
  app.add_option("--repeats", repeats, "runs of each, of which the fastest counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--cpu-time", cpu_time,
               "rates per processor second instead of wall second, for busy machines");
  app.add_option("--batch", batch, "images of the convolutions")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--only", only, "one table: gemm, conv, memory, overhead")
      ->check(CLI::IsMember({"gemm", "conv", "memory", "overhead"}));
  return run_program(app, argc, argv, [&] { run(argc, argv, device_name, only, batch); });
}
