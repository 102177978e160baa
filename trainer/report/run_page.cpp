#include "trainer/report/run_page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "core/memory/memory_report.h"
#include "trainer/report/chart.h"
#include "trainer/report/page.h"

namespace rw {

namespace {

using Json = nlohmann::json;

constexpr double megabyte = 1e6;

// Returns the report, or each of the runs in it.
std::vector<const Json*> runs_of(const Json& report) {
  std::vector<const Json*> runs;
  if (report.contains("runs"))
    for (const Json& run : report["runs"]) runs.push_back(&run);
  else
    runs.push_back(&report);
  return runs;
}

// Returns the colour of the next curve. The first curve is grey.
int colour_of(const Chart& chart) {
  constexpr size_t first = 2, colours = 9;
  return static_cast<int>((first + chart.series.size()) % colours);
}

std::string words(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

// Returns few enough points for a picture, including the last one.
Series thinned(const Series& series) {
  constexpr size_t most = 500;
  const size_t every = series.points.size() / most + 1;
  Series thin = series;
  thin.points.clear();
  for (size_t i = 0; i < series.points.size(); ++i)
    if ((series.points.size() - 1 - i) % every == 0) thin.points.push_back(series.points[i]);
  return thin;
}

// Returns one figure of those rows of a run that have it, over steps or, without steps, over row
// numbers.
Series curve(const Json& rows, const std::string& figure, double factor) {
  Series series{.name = words(figure)};
  for (size_t i = 0; i < rows.size(); ++i)
    if (const auto found = rows[i].find(figure); found != rows[i].end() && found->is_number())
      series.points.emplace_back(rows[i].value("step", static_cast<double>(i + 1)),
                                 factor * found->get<double>());
  return series;
}

// Draws the curves of all figures whose names end with a word.
Chart chart_of(const Json& report, std::string_view word, std::string title, std::string unit,
               double factor) {
  Chart chart{.title = std::move(title), .x = "step", .y = std::move(unit)};
  for (const Json* run : runs_of(report))
    for (const char* list : {"history", "evaluations"}) {
      const Json rows = run->value(list, Json::array());
      if (rows.empty()) continue;
      if (!rows[0].contains("step")) chart.x = "epoch";
      for (const auto& [figure, value] : rows.back().items()) {
        if (!figure.ends_with(word)) continue;
        Series series = curve(rows, figure, factor);
        if (series.points.empty()) continue;
        if (run->contains("name"))
          series.name = (*run)["name"].get<std::string>() + ": " + series.name;
        series.colour = colour_of(chart);
        chart.series.push_back(thinned(series));
      }
    }
  return chart;
}

// Returns the memory of the devices, of the run or of each of its runs.
const Json* memory_of(const Json& run) {
  for (const char* name : {"device", "memory"})
    if (const auto found = run.find(name); found != run.end() && found->contains("memory"))
      return &*found;
  return run.contains("memory") ? &run : nullptr;
}

Chart memory_chart(const Json& report) {
  Chart chart{.title = "Memory over time",
              .caption =
                  "Live bytes of the device in the order of allocations and kernels; MB are "
                  "a million bytes.",
              .x = "% of the trace",
              .y = "MB"};
  for (const Json* run : runs_of(report)) {
    const Json* memory = memory_of(*run);
    const Json live = memory ? memory->value("timeline", Json::array()) : Json::array();
    Series series{.name = run->value("name", "live"), .colour = colour_of(chart)};
    for (size_t i = 0; i < live.size(); ++i)
      series.points.emplace_back(100.0 * static_cast<double>(i) / static_cast<double>(live.size()),
                                 live[i].get<double>() / megabyte);
    if (!live.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("<tr><td>{}</td><td class='n'>{}</td></tr>\n", html_escaped(name),
                     html_escaped(value));
}

std::string table(std::string_view title, const std::string& rows) {
  if (rows.empty()) return "";
  return fmt::format("<h2>{}</h2>\n<div class='scroll'><table>\n{}</table></div>\n",
                     html_escaped(title), rows);
}

// Lists the largest first.
std::string memory_rows(const Json& memory) {
  std::vector<std::pair<uint64_t, std::string>> parts;
  for (const auto& [name, value] : memory.items())
    if (value.is_number_unsigned() && value.get<uint64_t>() > 0 && !name.ends_with("steps") &&
        !name.ends_with("misses"))
      parts.emplace_back(value.get<uint64_t>(), words(name));
  std::ranges::sort(parts, std::greater());
  std::string rows;
  for (const auto& [bytes, name] : parts) rows += row(name, format_bytes(bytes));
  return rows;
}

std::string saving_rows(const Json& savings) {
  std::string rows;
  for (const Json& saving : savings) {
    const auto saved = saving.value("saved", int64_t{0});
    const std::string bytes = format_bytes(static_cast<uint64_t>(std::abs(saved)));
    rows += fmt::format("<tr><td>{}</td><td class='n'>{}</td><td class='n'>{}</td></tr>\n",
                        html_escaped(saving.value("technique", "")),
                        saved ? (saved > 0 ? "&minus;" : "+") + bytes : "",
                        format_bytes(saving.value("peak", uint64_t{0})));
  }
  return rows.empty() ? rows
                      : "<tr><th>Technique, one more in each row</th><th class='n'>Saved</th>"
                        "<th class='n'>Peak</th></tr>\n" +
                            rows;
}

std::string tables_of(const Json& run) {
  const std::string whose = run.contains("name") ? ": " + run["name"].get<std::string>() : "";
  const Json* memory = memory_of(run);
  if (!memory) return "";
  return table("Savings by technique" + whose,
               saving_rows(memory->value("savings", Json::array()))) +
         table("Memory of the device" + whose, memory_rows((*memory)["memory"]));
}

std::string figure_rows(const Json& report) {
  std::string rows;
  for (const auto& [name, value] : report.items())
    if (value.is_primitive() && name != "command" && name != "title")
      rows += row(words(name), value.is_string() ? value.get<std::string>() : value.dump());
  return rows;
}

std::string facts(const Json& report, bool has_timeline) {
  std::string list;
  const auto add = [&](const char* name, const std::string& html) {
    if (!html.empty()) list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html);
  };
  const Json device = report.value("device", Json());
  add("Device", device.is_object()
                    ? html_escaped(fmt::format("{} ({})", device.value("name", ""),
                                               device.value("driver", "")))
                    : html_escaped(device.is_string() ? device.get<std::string>() : ""));
  if (const std::string command = report.value("command", ""); !command.empty())
    add("The same again", "<code>" + html_escaped(command) + "</code>");
  add("All figures", "<a href='report.json'>report.json</a>");
  if (has_timeline) add("Every tensor in memory", "<a href='memory.html'>memory.html</a>");
  return "<dl>\n" + list + "</dl>\n";
}

}  // namespace

std::string run_page(const Json& report, bool has_timeline) {
  std::string charts;
  for (const Chart& chart : {chart_of(report, "loss", "Loss", "mean over the targets", 1),
                             chart_of(report, "accuracy", "Accuracy", "% of the targets", 100),
                             chart_of(report, "error_rate", "Errors", "% of the words", 100),
                             chart_of(report, "learning_rate", "Learning rate", "of an update", 1),
                             memory_chart(report)})
    if (!chart.series.empty()) charts += to_svg(chart);
  std::string tables;
  for (const Json* run : runs_of(report)) tables += tables_of(*run);
  return html_page(report.value("title", "A run"),
                   facts(report, has_timeline) + "<div class='charts'>\n" + charts + "</div>\n" +
                       tables + table("Settings and figures", figure_rows(report)));
}

}  // namespace rw
