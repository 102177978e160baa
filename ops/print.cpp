#include "ops/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "ops/ops.h"

namespace rw {

namespace {

constexpr int64_t most_elements = 1000, edge = 3;
constexpr size_t line_width = 80;
constexpr const char* head = "tensor(";

// The elements that are shown, in order.
struct Shown {
  Shape shape;
  bool is_summary;
  std::vector<double> values;
};

// Copies the first and last elements of each axis from `t` to `to`, whose long axes have only
// those.
void copy_edges(const Tensor& t, const Tensor& to, int axis) {
  if (axis == t.rank()) return copy_into(t, to);
  const int64_t size = t.shape()[axis];
  if (size <= 2 * edge) return copy_edges(t, to, axis + 1);
  copy_edges(slice(t, axis, 0, edge), slice(to, axis, 0, edge), axis + 1);
  copy_edges(slice(t, axis, size - edge, size), slice(to, axis, edge, 2 * edge), axis + 1);
}

Shown read_shown(const Tensor& t) {
  const NoGrad guard;
  Shown shown{t.shape(), t.numel() > most_elements, {}};
  Tensor part = t;
  if (shown.is_summary) {
    for (int i = 0; i < t.rank(); ++i) shown.shape[i] = std::min(t.shape()[i], 2 * edge);
    part = empty(shown.shape, t.dtype(), t.device().shared_from_this());
    copy_edges(t, part, 0);
  }
  const auto take = [&](const auto& values) { shown.values.assign(values.begin(), values.end()); };
  is_float(t.dtype()) ? take(part.to_vector()) : take(part.to_ints());
  return shown;
}

// One format for all of a tensor's numbers, chosen as PyTorch does.
class NumberFormat {
 public:
  NumberFormat(const std::vector<double>& values, bool is_float) : is_float_(is_float) {
    double smallest = std::numeric_limits<double>::infinity(), largest = 0;
    for (const double v : values) {
      if (!std::isfinite(v) || v == 0) continue;
      smallest = std::min(smallest, std::abs(v));
      largest = std::max(largest, std::abs(v));
      is_whole_ &= v == std::ceil(v);
    }
    const bool is_wide = largest > 1e8 || largest / smallest > 1000;
    is_scientific_ = is_float && (is_wide || (!is_whole_ && smallest < 1e-4));
    for (const double v : values)
      if (!is_float || (std::isfinite(v) && v != 0)) width_ = std::max(width_, plain(v).size());
  }

  size_t width() const { return width_; }
  std::string operator()(double v) const { return fmt::format("{:>{}}", plain(v), width_); }

 private:
  std::string plain(double v) const {
    if (!is_float_ || !std::isfinite(v)) return fmt::format("{:.0f}", v);
    if (is_scientific_) return fmt::format("{:.4e}", v);
    return is_whole_ ? fmt::format("{:.0f}.", v) : fmt::format("{:.4f}", v);
  }

  bool is_float_, is_whole_ = true, is_scientific_ = false;
  size_t width_ = 1;
};

class Printer {
 public:
  explicit Printer(const Tensor& t)
      : whole_(t.shape()), shown_(read_shown(t)), number_(shown_.values, is_float(t.dtype())) {}

  // Writes the shown elements from `at` on, of the axes from `axis` on; `indent` is the number of
  // columns to the left.
  std::string write(int axis, size_t at, size_t indent) const {
    if (axis == shown_.shape.rank()) return number_(shown_.values[at]);
    const bool is_row = axis + 1 == shown_.shape.rank();
    const int64_t size = shown_.shape[axis];
    size_t step = 1;
    for (int i = axis + 1; i < shown_.shape.rank(); ++i)
      step *= static_cast<size_t>(shown_.shape[i]);
    std::vector<std::string> parts;
    for (int64_t i = 0; i < size; ++i) {
      const bool has_gap = shown_.is_summary && whole_[axis] > size;
      if (has_gap && i == edge) parts.emplace_back(is_row ? " ..." : "...");
      parts.push_back(write(axis + 1, at + static_cast<size_t>(i) * step, indent + 1));
    }
    return fmt::format("[{}]", is_row ? join_row(parts, indent) : join_blocks(parts, axis, indent));
  }

 private:
  // A line holds as many numbers as fit.
  std::string join_row(const std::vector<std::string>& parts, size_t indent) const {
    const size_t per_line = std::max<size_t>(1, (line_width - indent) / (number_.width() + 2));
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      text += parts[i];
    }
    return text;
  }

  std::string join_blocks(const std::vector<std::string>& parts, int axis, size_t indent) const {
    const auto lines = static_cast<size_t>(shown_.shape.rank() - axis - 1);
    const std::string between = fmt::format(",{:\n>{}}{:{}}", "", lines, "", indent + 1);
    return fmt::format("{}", fmt::join(parts, between));
  }

  Shape whole_;
  Shown shown_;
  NumberFormat number_;
};

}  // namespace

std::string to_string(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string values = "[]";
  if (t.device().backend().is_dry())
    values = "no values on a dry run";
  else if (t.numel() > 0)
    values = Printer(t).write(0, 0, std::string_view(head).size());
  return fmt::format("{}{}, {})", head, values, t.str());
}

std::ostream& operator<<(std::ostream& stream, const Tensor& t) {
  return stream << to_string(t);
}

}  // namespace rw
