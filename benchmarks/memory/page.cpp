// The report as one page: no scripts, nothing from the network.
#include "benchmarks/memory/chart.h"

namespace rw::memory {

namespace {

constexpr const char* style = R"(
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 1280px; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 36px 0 10px; }
h3 { font-size: 15px; margin: 0 0 4px; }
p, figcaption, dd, dt { color: var(--soft); } dl { display: grid; gap: 2px 14px; margin: 8px 0;
  grid-template-columns: max-content 1fr; } dd { margin: 0; overflow-wrap: anywhere; }
.charts { display: grid; gap: 30px 34px; grid-template-columns: repeat(auto-fill, minmax(440px, 1fr)); }
figure { margin: 0; } figcaption { font-size: 12.5px; line-height: 1.4; }
.legend { display: flex; flex-wrap: wrap; gap: 1px 14px; list-style: none; margin: 0 0 4px; padding: 0;
  font-size: 12.5px; }
.legend li::before { border-top: 3px solid; content: ''; display: inline-block; margin-right: 6px;
  vertical-align: middle; width: 16px; } .legend .published::before { border-top-style: dashed; }
svg { display: block; height: auto; width: 100%; }
.legend li { color: var(--ink); } .legend .c0::before { color: var(--c0); }
.legend .c1::before { color: var(--c1); } .legend .c2::before { color: var(--c2); }
.legend .c3::before { color: var(--c3); } .legend .c4::before { color: var(--c4); }
.legend .c5::before { color: var(--c5); } .legend .c6::before { color: var(--c6); }
.legend .c7::before { color: var(--c7); } .legend .c8::before { color: var(--c8); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 5px 12px 5px 0; text-align: left;
  vertical-align: top; } th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: var(--good); font-weight: 600; } .missed { color: var(--bad); font-weight: 600; }
details { margin-top: 12px; } summary { cursor: pointer; font-weight: 600; }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string bars_table(const Report& report) {
  if (report.bars.empty()) return "";
  std::string out =
      "<h2>What was to be reached</h2>\n<div class='scroll'><table><tr><th>What</th>"
      "<th>Published</th><th>Bar</th><th>Reached</th><th></th></tr>\n";
  for (const Bar& b : report.bars)
    out +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class='{}'>{}</td></tr>\n",
                    escaped(b.what), escaped(b.theirs), escaped(b.bar), escaped(b.ours),
                    b.met ? "met" : "missed", b.met ? "met" : "missed");
  return out + "</table></div>\n";
}

std::string fits_table(const Report& report) {
  if (report.fits.empty()) return "";
  std::string out =
      "<h2>How the peak grows with depth</h2>\n<div class='scroll'><table><tr><th>Series</th>"
      "<th class='n'>exponent b of a&thinsp;k<sup>b</sup></th><th class='n'>a, MB</th>"
      "<th class='n'>c of c&thinsp;&radic;k, MB</th></tr>\n";
  for (const Fit& f : report.fits)
    out += fmt::format(
        "<tr><td>{}</td><td class='n'>{:.2f}</td><td class='n'>{:.0f}</td>"
        "<td class='n'>{:.0f}</td></tr>\n",
        escaped(f.series), f.exponent, f.factor, f.sqrt_factor);
  return out + "</table></div>\n";
}

std::string results_table(const Report& report) {
  std::string out =
      "<h2>All figures</h2>\n<details><summary>Table</summary><div class='scroll'><table><tr>"
      "<th>Row</th><th>Model</th><th class='n'>Depth</th><th class='n'>Batch</th><th>Input</th>"
      "<th>Variant</th><th>Method</th><th class='n'>Records</th><th class='n'>Saved</th>"
      "<th class='n'>Saved MB</th><th class='n'>Peak MB</th><th class='n'>Reserved MB</th>"
      "<th class='n'>FLOPs on top</th><th class='n'>Modelled time</th><th class='n'>Step</th>"
      "<th class='n'>Time on top</th></tr>\n";
  for (const Result& r : report.results) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class='n'>{}</td><td class='n'>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td class='n'>{}</td><td class='n'>{}</td><td class='n'>{:.1f}</td>"
        "<td class='n'>{:.1f}</td><td class='n'>{:.1f}</td><td class='n'>{:+.1f} %</td>"
        "<td class='n'>{:+.1f} %</td><td class='n'>{}</td><td class='n'>{}</td></tr>\n",
        r.row, escaped(r.about.model), r.about.depth, r.about.batch, r.about.input,
        variant(r.about), r.method, r.tape.records, r.tape.saved_tensors,
        megabytes(r.tape.saved_bytes), megabytes(r.peak), megabytes(r.reserved), 100 * r.recompute,
        100 * r.modelled, step_time(r), time_on_top(r));
  }
  return out + "</table></div></details>\n";
}

std::string facts(const Report& report) {
  size_t real = 0, equal = 0;
  std::string device;
  for (const Result& r : report.results) {
    if (!r.real) continue;
    ++real;
    equal += r.real->peak == r.peak;
    device = r.real->device;
  }
  std::string out = fmt::format(
      "<dl><dt>Machine</dt><dd>{}</dd><dt>Command</dt><dd><code>{}</code></dd>"
      "<dt>Dry runs predict</dt><dd>{}</dd>",
      escaped(report.machine), escaped(report.command), escaped(report.profile));
  if (real)
    out += fmt::format(
        "<dt>Really run</dt><dd>{} configurations on {}: in {} of them the measured "
        "peak is the predicted one, to the byte</dd>",
        real, escaped(device), equal);
  return out + "</dl>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  std::string charts;
  for (const Chart& chart : charts_of(report)) charts += to_svg(chart);
  return fmt::format(
      "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<title>Memory against tape size</title>\n<style>{}{}</style>\n</head>\n<body>\n"
      "<h1>Memory against tape size</h1>\n<p>What a training step keeps, its peak, and what "
      "recomputation costs. MB are 10<sup>6</sup> bytes. FLOPs on top: those of replays, relative "
      "to forward and backward. Hover a point for its figures.</p>\n{}{}"
      "<h2>Charts</h2>\n<div class='charts'>\n{}</div>\n{}{}</body>\n</html>\n",
      chart_style(), style, facts(report), bars_table(report), charts, fits_table(report),
      results_table(report));
}

}  // namespace rw::memory
