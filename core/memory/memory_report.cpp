#include "core/memory/memory_report.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "core/base/error.h"

namespace rw {

std::string format_bytes(uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

std::string exact_bytes(uint64_t bytes) {
  return bytes < 1024 ? format_bytes(bytes)
                      : fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
}

uint64_t parse_bytes(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c)
    if (*c != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  const std::string_view powers = "KMGT";
  double scale = 1;
  const size_t power = unit.empty() ? std::string_view::npos : powers.find(unit[0]);
  if (power != std::string_view::npos) {
    const std::string rest = unit.substr(1);
    scale = std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
    unit = rest == "IB" || rest == "B" ? "" : rest;
  } else if (unit == "B") {
    unit.clear();
  }
  check(error == std::errc() && unit.empty() && std::isfinite(value) && value * scale >= 1 &&
            value * scale < 0x1p62,
        "memory size",
        "must be a number with an optional unit (512M, 8GiB, 2GB) and at least a byte, got '{}'",
        text);
  return static_cast<uint64_t>(value * scale);
}

std::string MemoryReport::str() const {
  std::string out = fmt::format("Device memory: peak {}, live {}, reserved {}{}\n",
                                format_bytes(peak), format_bytes(live), format_bytes(peak_reserved),
                                limit ? fmt::format(", limit {}", format_bytes(limit)) : "");
  out += "  at the peak:\n";
  for (int i = 0; i < purpose_count; ++i)
    if (peak_by_purpose[i])
      out +=
          fmt::format("    {:<26}{:>12}   {:5.1f} %\n", name(static_cast<Purpose>(i)),
                      format_bytes(peak_by_purpose[i]),
                      100.0 * static_cast<double>(peak_by_purpose[i]) / static_cast<double>(peak));
  out += fmt::format("    {:<26}{:>12}\n", "padding", format_bytes(padding_at_peak));
  out += fmt::format("    {:<26}{:>12}\n", "fragmentation", format_bytes(fragmentation_at_peak));
  if (host_peak)
    out +=
        fmt::format("  beside it, host memory: peak {}, live {}, reserved {}\n",
                    format_bytes(host_peak), format_bytes(host_live), format_bytes(host_reserved));
  if (moved) out += fmt::format("  moved to make room{:>22}\n", format_bytes(moved));
  if (driver_overhead)
    out += fmt::format("  driver's own memory{:>21}\n", format_bytes(driver_overhead));
  if (naive > peak)
    out += fmt::format("  if nothing were freed in a step: {} ({:.1f} times the peak)\n",
                       format_bytes(naive), static_cast<double>(naive) / static_cast<double>(peak));
  if (followed_steps)
    out += fmt::format("  steps laid out by the offline plan: {}, allocations it missed: {}\n",
                       followed_steps, plan_misses);
  return out;
}

std::string MemoryReport::json() const {
  std::string out = "{";
  const auto add = [&](std::string_view key, uint64_t value) {
    out += fmt::format("{}\"{}\": {}", out.size() > 1 ? ", " : "", key, value);
  };
  for (int i = 0; i < purpose_count; ++i) {
    std::string key = name(static_cast<Purpose>(i));
    if (const size_t space = key.find(' '); space != std::string::npos) key[space] = '_';
    add(key, peak_by_purpose[i]);
  }
  add("live", live);
  add("peak", peak);
  add("reserved", reserved);
  add("peak_reserved", peak_reserved);
  add("padding_at_peak", padding_at_peak);
  add("fragmentation_at_peak", fragmentation_at_peak);
  add("limit", limit);
  add("moved", moved);
  add("host_live", host_live);
  add("host_peak", host_peak);
  add("host_reserved", host_reserved);
  add("naive", naive);
  add("followed_steps", followed_steps);
  add("plan_misses", plan_misses);
  add("driver_overhead", driver_overhead);
  return out + "}";
}

}  // namespace rw
