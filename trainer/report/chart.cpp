#include "trainer/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/report/page.h"

namespace rw {

namespace {

// An axis, which maps values to 0 .. 1 and has ticks at round numbers.
class Axis {
 public:
  Axis(const Chart& chart, bool vertical) : log_(vertical ? chart.log_y : chart.log_x) {
    double low = INFINITY, high = -INFINITY;
    for (const Series& s : chart.series)
      for (const auto& [x, y] : s.points) {
        const double value = vertical ? y : x;
        if (log_ && value <= 0) continue;
        low = std::min(low, value), high = std::max(high, value);
      }
    if (!(low <= high)) low = 1, high = 10;
    if (!log_) low = 0, high = high > 0 ? high * 1.05 : 1;
    low_ = log_ ? std::log10(low / 1.15) : low;
    high_ = log_ ? std::log10(high * 1.15) : high;
  }

  double at(double value) const {
    const double v = log_ ? std::log10(std::max(value, 1e-12)) : value;
    return std::clamp((v - low_) / (high_ - low_), 0.0, 1.0);
  }

  std::vector<double> ticks() const { return log_ ? log_ticks() : linear_ticks(); }

 private:
  std::vector<double> linear_ticks() const {
    const double raw = (high_ - low_) / 5, unit = std::pow(10, std::floor(std::log10(raw)));
    double step = unit;
    for (const double factor : {2., 5., 10.})
      if (step < raw) step = unit * factor;
    std::vector<double> ticks;
    for (double v = 0; v <= high_; v += step) ticks.push_back(v);
    return ticks;
  }
  std::vector<double> log_ticks() const {
    const bool wide = high_ - low_ > 2.2;  // decades
    std::vector<double> ticks;
    for (int decade = static_cast<int>(std::floor(low_)); decade <= high_; ++decade)
      for (const double digit : {1., 2., 5.}) {
        const double v = digit * std::pow(10, decade), at = std::log10(v);
        if ((digit == 1 || !wide) && at >= low_ && at <= high_) ticks.push_back(v);
      }
    return ticks;
  }

  bool log_;
  double low_ = 0, high_ = 1;
};

std::string tick_label(double v) {
  if (v >= 1e6) return fmt::format("{:g}M", v / 1e6);
  if (v >= 1e4) return fmt::format("{:g}k", v / 1e3);
  return fmt::format("{:g}", v);
}

constexpr double width = 560, height = 340, left = 62, right = 14, top = 12, bottom = 46;

struct Canvas {
  Axis x, y;
  double px(double v) const { return left + x.at(v) * (width - left - right); }
  double py(double v) const { return height - bottom - y.at(v) * (height - top - bottom); }
};

std::string grid(const Chart& chart, const Canvas& c) {
  std::string out;
  for (const double v : c.y.ticks())
    out += fmt::format(
        "<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>"
        "<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n",
        left, width - right, c.py(v), c.py(v), left - 7, c.py(v) + 4, tick_label(v));
  for (const double v : c.x.ticks())
    out += fmt::format(
        "<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>"
        "<text class='tick' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
        c.px(v), c.px(v), top, height - bottom, c.px(v), height - bottom + 17, tick_label(v));
  out += fmt::format("<text class='axis' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                     (left + width - right) / 2, height - 8, html_escaped(chart.x));
  out += fmt::format(
      "<text class='axis' transform='translate(14 {:.1f}) rotate(-90)' "
      "text-anchor='middle'>{}</text>\n",
      (top + height - bottom) / 2, html_escaped(chart.y));
  return out;
}

std::string curve(const Series& s, const Canvas& c) {
  std::string path, dots;
  for (size_t i = 0; i < s.points.size(); ++i) {
    const auto& [x, y] = s.points[i];
    path += fmt::format("{}{:.1f} {:.1f}", i ? " L" : "M", c.px(x), c.py(y));
    const std::string note = i < s.notes.size() ? s.notes[i] : fmt::format("{:g}, {:.4g}", x, y);
    dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.2'><title>{}: {}</title></circle>",
                        c.px(x), c.py(y), html_escaped(s.name), html_escaped(note));
  }
  constexpr size_t most_dots = 60;  // with more points, only the one under the pointer is drawn
  return fmt::format("<g class='c{}{}{}'><path d='{}'/>{}</g>\n", s.colour,
                     s.published ? " published" : "", s.points.size() > most_dots ? " dense" : "",
                     path, dots);
}

}  // namespace

std::string to_picture(const Chart& chart) {
  constexpr double head = 30, line = 18;
  const Canvas canvas{Axis(chart, false), Axis(chart, true)};
  std::string body = grid(chart, canvas);
  double y = height + 4;
  for (const Series& s : chart.series) {
    body += curve(s, canvas);
    body += fmt::format(
        "<g class='c{}{}'><path d='M{} {}h26'/></g><text class='axis' x='{}' y='{}'>{}</text>\n",
        s.colour, s.published ? " published" : "", left, y, left + 34, y + 4, html_escaped(s.name));
    y += line;
  }
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}'>\n<style>{2}</style>\n"
      "<rect width='{0}' height='{1}' style='fill: var(--page)'/>\n"
      "<text class='axis' x='{3}' y='20' style='font-weight: 600'>{4}</text>\n"
      "<g transform='translate(0 {5})'>\n{6}</g></svg>\n",
      width, head + y, chart_style(), left, html_escaped(chart.title), head, body);
}

std::string to_svg(const Chart& chart) {
  const Canvas canvas{Axis(chart, false), Axis(chart, true)};
  std::string legend, curves;
  for (const Series& s : chart.series) {
    legend += fmt::format("<li class='c{}{}'>{}</li>", s.colour, s.published ? " published" : "",
                          html_escaped(s.name));
    curves += curve(s, canvas);
  }
  return fmt::format(
      "<figure>\n<h3>{}</h3>\n<ul class='legend'>{}</ul>\n"
      "<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>\n{}{}</svg>\n"
      "<figcaption>{}</figcaption>\n</figure>\n",
      html_escaped(chart.title), legend, width, height, html_escaped(chart.title),
      grid(chart, canvas), curves, html_escaped(chart.caption));
}

std::string to_text(const Chart& chart) {
  constexpr int columns = 66, lines = 18;
  const Axis x(chart, false), y(chart, true);
  std::vector<std::string> cells(lines, std::string(columns, ' '));
  std::string legend;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const char mark = static_cast<char>(s.published ? '1' + i : 'a' + i);
    legend += fmt::format("  {} {}", mark, s.name);
    for (const auto& [px, py] : s.points) {
      const auto column = static_cast<size_t>(std::lround(x.at(px) * (columns - 1)));
      const auto line = static_cast<size_t>(std::lround((1 - y.at(py)) * (lines - 1)));
      cells[line][column] = cells[line][column] == ' ' ? mark : '*';
    }
  }
  std::vector<std::string> labels(lines);
  for (const double v : y.ticks())
    labels[static_cast<size_t>(std::lround((1 - y.at(v)) * (lines - 1)))] = tick_label(v);
  std::string axis(columns + 8, ' ');
  for (const double v : x.ticks()) {
    const std::string label = tick_label(v);
    const auto at = static_cast<size_t>(std::lround(x.at(v) * (columns - 1)));
    if (at + label.size() <= axis.size()) axis.replace(at, label.size(), label);
  }
  std::string out = fmt::format("\n{}: {}\n", chart.title, chart.y);
  for (int i = 0; i < lines; ++i)
    out +=
        fmt::format("{:>8} |{}\n", labels[static_cast<size_t>(i)], cells[static_cast<size_t>(i)]);
  return out + fmt::format("{:>8} +{}\n{:>8}  {}  {}\n{}   * several\n", "",
                           std::string(columns, '-'), "", axis, chart.x, legend);
}

}  // namespace rw
