// The charts of a report.
#include <algorithm>
#include <functional>
#include <map>

#include "benchmarks/memory/report.h"

namespace rw::memory {

namespace {

using Value = double (*)(const Result&);

struct Method {
  const char *name, *title;
};
constexpr Method methods[] = {{"plain", "plain"},
                              {"block", "block: the model's segments"},
                              {"memory", "memory: every op at most twice"},
                              {"nested", "nested: halved again and again"},
                              {"budget", "budget: cheapest in so many bytes"},
                              {"time", "time: quickest in so many bytes"},
                              {"speed", "speed: outputs of convolutions and products kept"}};
constexpr int published_colour = 7;

double peak(const Result& r) {
  return megabytes(r.peak);
}
double saved(const Result& r) {
  return megabytes(r.tape.saved_bytes);
}
double saved_tensors(const Result& r) {
  return static_cast<double>(r.tape.saved_tensors);
}
double recompute(const Result& r) {
  return 100 * r.recompute;
}
double modelled(const Result& r) {
  return 100 * r.modelled;
}
double step_seconds(const Result& r) {
  return r.times ? r.times->seconds : r.real ? r.real->seconds : 0;
}

std::string note(const Result& r) {
  std::string text = fmt::format(
      "depth {}, peak {:.1f} MB, tape {} records, {} saved tensors, "
      "{:.1f} MB, recompute {:+.1f} % FLOPs, {:+.1f} % modelled time",
      r.about.depth, peak(r), r.tape.records, r.tape.saved_tensors, saved(r), 100 * r.recompute,
      100 * r.modelled);
  if (r.real) text += fmt::format(", step {:.3f} s", r.real->seconds);
  return text;
}

std::string setting(const Case& c) {
  return fmt::format("{}, batch {}, {}, {}", c.model, c.batch, c.input, variant(c));
}

// One series per method over the depth axis.
Chart over_depth(const std::vector<const Result*>& results, std::string title, Value value,
                 std::string unit) {
  const Case& about = results.front()->about;
  Chart chart{.title = std::move(title),
              .caption = fmt::format("{}. In the peak: {}. {}", setting(about), about.in_peak,
                                     results.front()->device),
              .x = "k of depth 6k + 2",
              .y = std::move(unit)};
  for (int i = 0; i < static_cast<int>(std::size(methods)); ++i) {
    Series s{.name = methods[i].title, .colour = i};
    for (const Result* r : results) {
      if (r->method != methods[i].name) continue;
      s.points.emplace_back(static_cast<double>(r->about.scale), value(*r));
      s.notes.push_back(note(*r));
    }
    if (!s.points.empty()) chart.series.push_back(std::move(s));
  }
  return chart;
}

// Results of a row in groups of one key, without the fronts.
using Groups = std::map<std::string, std::vector<const Result*>>;
Groups group(const Report& report, const std::string& row, bool fronts,
             const std::function<std::string(const Result&)>& key) {
  Groups groups;
  for (const Result& r : report.results)
    if (r.row == row && (r.method == "front") == fronts) groups[key(r)].push_back(&r);
  return groups;
}

void add_openai(const Report& report, std::vector<Chart>& charts) {
  const auto groups =
      group(report, "openai", false, [](const Result& r) { return variant(r.about); });
  for (const auto& [name, results] : groups) {
    Chart chart = over_depth(results, "Peak memory: " + name, peak, "MB at the peak");
    chart.log_x = chart.log_y = true;
    const bool as_published = name == "BatchNorm off, f32";
    if (as_published) {
      chart.series.push_back({.name = "OpenAI, regular",
                              .colour = published_colour,
                              .published = true,
                              .points = {{1, 750}, {5, 1780}, {10, 3250}, {15, 4730}, {19, 5920}}});
      chart.series.push_back(
          {.name = "OpenAI, optimized",
           .colour = published_colour + 1,
           .published = true,
           .points = {{1, 630}, {5, 1120}, {10, 1380}, {15, 1560}, {19, 1630}, {200, 5950}}});
    }
    charts.push_back(std::move(chart));
    if (!as_published) continue;
    for (auto& [title, value, unit] :
         {std::tuple{"Tape: saved bytes", &saved, "MB saved after forward"},
          std::tuple{"Tape: saved tensors", &saved_tensors, "tensors saved after forward"}}) {
      charts.push_back(over_depth(results, title, value, unit));
      charts.back().log_x = charts.back().log_y = true;
    }
    for (auto& [title, value, unit] :
         {std::tuple{"Recomputation: FLOPs", &recompute, "% of FLOPs on top"},
          std::tuple{"Recomputation: modelled time", &modelled, "% of modelled time on top"}}) {
      charts.push_back(over_depth(results, title, value, unit));
      charts.back().log_x = true;
    }
    if (results.front()->real) {
      charts.push_back(over_depth(results, "Seconds of a step, measured", step_seconds, "s"));
      charts.back().log_x = charts.back().log_y = true;
    }
  }
}

// Memory against work: all choices of the search.
void add_fronts(const Report& report, const std::string& row, std::vector<Chart>& charts) {
  const auto groups = group(report, row, true, [](const Result& r) {
    return fmt::format("{} of depth {:>4}, batch {}", r.about.model, r.about.depth, r.about.batch);
  });
  for (const auto& [name, results] : groups) {
    Chart chart{
        .title = "Memory against work: " + name,
        .caption = fmt::format("All plans that the search measured. {}. In the peak: {}.",
                               setting(results.front()->about), results.front()->about.in_peak),
        .x = "MB at the peak",
        .y = "% of FLOPs on top",
        .log_x = true};
    for (const Result* r : results) {
      if (r->recompute > 0.8) continue;  // nobody pays that
      const std::string series = variant(r->about);
      auto found = std::find_if(chart.series.begin(), chart.series.end(),
                                [&](const Series& s) { return s.name == series; });
      if (found == chart.series.end()) {
        const int colour = static_cast<int>(chart.series.size());
        chart.series.push_back({.name = series, .colour = colour});
        found = chart.series.end() - 1;
      }
      found->points.emplace_back(peak(*r), recompute(*r));
      found->notes.push_back(note(*r));
    }
    if (row == "resnet50")
      chart.series.push_back(
          {.name = "MONeT, % of time",
           .colour = published_colour,
           .published = true,
           .points = {{15060, 0}, {10010, 3.2}, {8010, 5.6}, {6000, 9.3}, {4990, 12.0}}});
    charts.push_back(std::move(chart));
  }
}

// The cost of a sample against the batch, as a multiple of the plain run's largest.
void add_bert(const Report& report, std::vector<Chart>& charts) {
  Chart chart{.title = "BERT in 8 GiB: larger batches",
              .caption =
                  "Largest batches by dry runs limited to 8 GiB of blocks, with f32 "
                  "parameters, gradients and Adam state.",
              .x = "batch, as a multiple of the plain run's largest",
              .y = "% of FLOPs on top, for each sample"};
  const auto groups = group(report, "bert", false, [](const Result& r) {
    return fmt::format("{}, {}, {}", r.about.model, r.about.input, name(r.about.dtype));
  });
  for (const auto& [name, results] : groups) {
    Series s{.name = name, .colour = static_cast<int>(chart.series.size())};
    const auto plain = static_cast<double>(results.front()->about.batch);
    for (const Result* r : results) {
      if (r->method == "block") continue;
      s.points.emplace_back(static_cast<double>(r->about.batch) / plain, recompute(*r));
      s.notes.push_back(fmt::format("{}, batch {}, {}", r->method, r->about.batch, note(*r)));
    }
    chart.series.push_back(std::move(s));
  }
  if (!chart.series.empty()) charts.push_back(std::move(chart));
}

void add_real(const Report& report, std::vector<Chart>& charts) {
  std::vector<const Result*> results;
  for (const Result& r : report.results)
    if (r.row == "real" && r.about.norm == "BatchNorm off") results.push_back(&r);
  if (results.size() < 2) return;
  charts.push_back(over_depth(results, "Step time, really run", step_seconds, "s"));
  charts.back().log_x = charts.back().log_y = true;
  charts.back().caption = setting(results.front()->about) + ". " + results.front()->real->device;
  charts.push_back(over_depth(results, "Peak memory, really run", peak, "MB at the peak"));
  charts.back().log_x = charts.back().log_y = true;
}

}  // namespace

std::vector<Chart> charts_of(const Report& report) {
  std::vector<Chart> charts;
  add_openai(report, charts);
  for (const char* row : {"openai", "depth122", "resnet50", "resnet1001"})
    add_fronts(report, row, charts);
  add_bert(report, charts);
  add_real(report, charts);
  return charts;
}

}  // namespace rw::memory
