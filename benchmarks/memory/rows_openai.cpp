// OpenAI's gradient-checkpointing (2018): figures read off resnet_test.png, GTX 1080, smallest of
// three runs, gradients only. Its slope over k is that of a network without BatchNorm.
#include <cmath>
#include <map>

#include "benchmarks/memory/rows.h"
#include "benchmarks/memory/workloads.h"

namespace rw::memory {

namespace {

// Theirs where they measured; from there on their curve, 1630 MB * sqrt(k / 19).
uint64_t budget_bytes(int k) {
  static const std::map<int, double> bytes = {{1, 630 * MB},   {5, 1120 * MB},  {10, 1380 * MB},
                                              {15, 1560 * MB}, {19, 1500 * MB}, {200, 5500 * MB}};
  const auto found = bytes.find(k);
  return static_cast<uint64_t>(found != bytes.end() ? found->second
                                                    : 1630 * MB * std::sqrt(k / 19.0));
}

void measure_openai(const RowOptions& o, Report& report, int k, bool norm, DType dtype) {
  Bench bench("openai", cifar_workload(k, 1280, norm, dtype), o.profile,
              k == 19 || k == 200 ? 24 : 12);
  const bool as_theirs = !norm && dtype == DType::f32;
  add(o, report, bench.plain());
  add(o, report, bench.block());
  add(o, report, bench.memory());
  add(o, report, bench.nested());
  const Result r = add_budget(o, report, bench, budget_bytes(k));
  if (k != 19 && k != 200) return;
  if (k == 19 && as_theirs) {
    constexpr auto tight = static_cast<uint64_t>(1000 * MB);
    add_bar(report, add_budget(o, report, bench, tight), "k = 19 (depth 116)",
            "1630 MB at +24.6 % time", tight, 0.24);
  }
  add_front(o, report, bench);
  if (!as_theirs) return;
  add_bar(report, r, fmt::format("k = {} (depth {})", k, 6 * k + 2),
          k == 19 ? "5920 to 1630 MB at +24.6 % time" : "about 5950 MB", budget_bytes(k), 0.25);
}

// Least squares of log peak over log k.
void fit(Report& report, bool norm, DType dtype, const std::string& method) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, product = 0, squares = 0;
  std::string series;
  for (const Result& r : report.results) {
    const bool same_norm = (r.about.norm == "BatchNorm on") == norm;
    if (r.row != "openai" || r.method != method || !same_norm || r.about.dtype != dtype) continue;
    const double k = static_cast<double>(r.about.scale), y = megabytes(r.peak);
    const double lx = std::log(k), ly = std::log(y);
    n += 1, sx += lx, sy += ly, sxx += lx * lx, sxy += lx * ly;
    product += y * std::sqrt(k), squares += k;
    series = method + ", " + variant(r.about);
  }
  if (n < 3) return;
  const double exponent = (n * sxy - sx * sy) / (n * sxx - sx * sx);
  report.fits.push_back({.row = "openai",
                         .series = series,
                         .factor = std::exp((sy - exponent * sx) / n),
                         .exponent = exponent,
                         .sqrt_factor = product / squares});
}

}  // namespace

void openai_row(const RowOptions& o, Report& report) {
  struct Variant {
    bool norm;
    DType dtype;
  };
  const std::vector<Variant> variants = {
      {false, DType::f32}, {true, DType::f32}, {false, DType::f16}};
  const std::vector<int> quick = {1, 5, 10, 15, 19}, all = {1, 5, 10, 15, 19, 50, 100, 200};
  for (const auto& [norm, dtype] : variants) {
    for (const int k : o.all ? all : quick) measure_openai(o, report, k, norm, dtype);
    for (const char* method : {"plain", "block", "memory", "nested", "budget"})
      fit(report, norm, dtype, method);
    if (!o.all) return;
  }
}

}  // namespace rw::memory
