// The report as one page: no scripts, nothing from the network.
#include "trainer/report/page.h"

#include "benchmarks/memory/report.h"

namespace rw::memory {

namespace {

std::string bars_table(const Report& report) {
  if (report.bars.empty()) return "";
  std::string out =
      "<h2>What was to be reached</h2>\n<div class='scroll'><table><tr><th>What</th>"
      "<th>Published</th><th>Bar</th><th>Reached</th><th></th></tr>\n";
  for (const Bar& b : report.bars)
    out +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class='{}'>{}</td></tr>\n",
                    html_escaped(b.what), html_escaped(b.theirs), html_escaped(b.bar),
                    html_escaped(b.ours), b.met ? "met" : "missed", b.met ? "met" : "missed");
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
        html_escaped(f.series), f.exponent, f.factor, f.sqrt_factor);
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
        r.row, html_escaped(r.about.model), r.about.depth, r.about.batch, r.about.input,
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
      html_escaped(report.machine), html_escaped(report.command), html_escaped(report.profile));
  if (real)
    out += fmt::format(
        "<dt>Really run</dt><dd>{} configurations on {}: in {} of them the measured "
        "peak is the predicted one, to the byte</dd>",
        real, html_escaped(device), equal);
  return out + "</dl>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  std::string charts;
  for (const Chart& chart : charts_of(report)) charts += to_svg(chart);
  return html_page("Memory against tape size",
                   fmt::format("<p>What a training step keeps, its peak, and what recomputation "
                               "costs. MB are 10<sup>6</sup> bytes. FLOPs on top: those of "
                               "replays, relative to forward and backward. Hover a point for its "
                               "figures.</p>\n{}{}<h2>Charts</h2>\n<div class='charts'>\n{}</div>"
                               "\n{}{}",
                               facts(report), bars_table(report), charts, fits_table(report),
                               results_table(report)));
}

}  // namespace rw::memory
