#include "backends/kernel_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace rw {

void KernelSums::add(const std::string& kernel, double microseconds) {
  Sum& sum = sums_[kernel];
  ++sum.count;
  sum.microseconds += microseconds;
}

std::string KernelSums::text() const {
  std::vector<std::pair<std::string, Sum>> rows(sums_.begin(), sums_.end());
  std::sort(rows.begin(), rows.end(),
            [](auto& a, auto& b) { return a.second.microseconds > b.second.microseconds; });
  std::string text;
  for (auto& [kernel, sum] : rows)
    text += fmt::format("{:<40} {:>8} x {:>10.1f} us = {:>12.0f} us\n", kernel, sum.count,
                        sum.microseconds / static_cast<double>(sum.count), sum.microseconds);
  return text;
}

}  // namespace rw
