#include "backends/kernel_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace rw {

void KernelSums::add(const std::string& kernel, double microseconds) {
  auto& [calls, sum] = sums_[kernel];
  ++calls;
  sum += microseconds;
}

std::string KernelSums::text() const {
  std::vector<std::pair<std::string, std::pair<uint64_t, double>>> rows(sums_.begin(), sums_.end());
  std::sort(rows.begin(), rows.end(),
            [](auto& a, auto& b) { return a.second.second > b.second.second; });
  std::string text;
  for (auto& [kernel, sum] : rows)
    text += fmt::format("{:<40} {:>8} x {:>10.1f} us = {:>12.0f} us\n", kernel, sum.first,
                        sum.second / static_cast<double>(sum.first), sum.second);
  return text;
}

}  // namespace rw
