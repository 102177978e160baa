#include "benchmarks/memory/report.h"

#include "core/memory/memory_report.h"
#include "data/base/files.h"

namespace rw::memory {

namespace {

using Json = nlohmann::json;

Json to_json(const TapeStats& tape) {
  return {{"records", tape.records},
          {"saved_tensors", tape.saved_tensors},
          {"saved_bytes", tape.saved_bytes},
          {"segments", tape.segments}};
}

Json to_json(const Result& r) {
  Json json = {{"row", r.row},
               {"model", r.about.model},
               {"depth", r.about.depth},
               {"scale", r.about.scale},
               {"batch", r.about.batch},
               {"input", r.about.input},
               {"dtype", name(r.about.dtype)},
               {"norm", r.about.norm},
               {"in_peak", r.about.in_peak},
               {"device", r.device},
               {"method", r.method},
               {"budget", r.budget},
               {"tape", to_json(r.tape)},
               {"peak", r.peak},
               {"reserved", r.reserved},
               {"naive", r.naive},
               {"flops", r.flops},
               {"recompute_flops", r.recompute},
               {"recompute_modelled_time", r.modelled},
               {"dry_seconds", r.dry_seconds}};
  if (r.real) {
    json["real"] = {{"device", r.real->device},      {"peak", r.real->peak},
                    {"reserved", r.real->reserved},  {"process", r.real->process},
                    {"tape", to_json(r.real->tape)}, {"step_seconds", r.real->seconds}};
  }
  if (r.times)
    json["times"] = {{"device", r.times->device},        {"rounds", r.times->rounds},
                     {"step_seconds", r.times->seconds}, {"on_top", r.times->on_top},
                     {"least", r.times->least},          {"most", r.times->most}};
  return json;
}

// Commas and quotes as RFC 4180 has them.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string csv_times(const Result& r) {
  if (!r.times) return ",,,,";
  const StepTimes& t = *r.times;
  return fmt::format("{:.6f},{:.4f},{:.4f},{:.4f},{}", t.seconds, t.on_top, t.least, t.most,
                     quoted(t.device));
}

}  // namespace

std::string step_time(const Result& r) {
  if (r.times) return fmt::format("{:.3f} s", r.times->seconds);
  return r.real ? fmt::format("{:.3f} s", r.real->seconds) : "";
}

std::string time_on_top(const Result& r) {
  if (!r.times) return "";
  const StepTimes& t = *r.times;
  if (r.method == "plain") return "plain";
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * t.on_top, 100 * t.least, 100 * t.most);
}

double megabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

std::string variant(const Case& about) {
  return fmt::format("{}, {}", about.norm, name(about.dtype));
}

Json to_json(const Report& report) {
  Json json = {{"machine", report.machine}, {"command", report.command},
               {"profile", report.profile}, {"results", Json::array()},
               {"bars", Json::array()},     {"fits", Json::array()}};
  for (const Result& r : report.results) json["results"].push_back(to_json(r));
  for (const Bar& b : report.bars)
    json["bars"].push_back({{"row", b.row},
                            {"what", b.what},
                            {"theirs", b.theirs},
                            {"bar", b.bar},
                            {"ours", b.ours},
                            {"met", b.met}});
  for (const Fit& f : report.fits)
    json["fits"].push_back({{"row", f.row},
                            {"series", f.series},
                            {"factor_mb", f.factor},
                            {"exponent", f.exponent},
                            {"sqrt_factor_mb", f.sqrt_factor}});
  return json;
}

std::string to_csv(const Report& report) {
  std::string csv =
      "row,model,depth,scale,batch,input,dtype,norm,method,budget,records,saved_tensors,"
      "saved_bytes,peak,reserved,naive,flops,recompute_flops,recompute_modelled_time,dry_seconds,"
      "real_peak,real_process,real_step_seconds,step_seconds,time_on_top,time_on_top_least,"
      "time_on_top_most,"
      "timed_on,in_peak,device\n";
  for (const Result& r : report.results) {
    const Case& c = r.about;
    csv += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.3f},{},{},{},{},{},{}\n",
        r.row, quoted(c.model), c.depth, c.scale, c.batch, quoted(c.input), name(c.dtype),
        quoted(c.norm), r.method, r.budget, r.tape.records, r.tape.saved_tensors,
        r.tape.saved_bytes, r.peak, r.reserved, r.naive, r.flops, r.recompute, r.modelled,
        r.dry_seconds, r.real ? fmt::format("{}", r.real->peak) : "",
        r.real ? fmt::format("{}", r.real->process) : "",
        r.real ? fmt::format("{:.6f}", r.real->seconds) : "", csv_times(r), quoted(c.in_peak),
        quoted(r.device));
  }
  return csv;
}

std::string to_markdown(const Report& report) {
  std::string out = fmt::format(
      "# Memory against tape size\n\n- machine: {}\n- command: `{}`\n- dry runs predict: {}\n"
      "- MB are 10^6 bytes; FLOPs of recomputation are relative to forward and backward\n\n"
      "## Bars\n\n| row | what | theirs | bar | ours | |\n|---|---|---|---|---|---|\n",
      report.machine, report.command, report.profile);
  for (const Bar& b : report.bars)
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", b.row, b.what, b.theirs, b.bar, b.ours,
                       b.met ? "met" : "missed");
  if (!report.fits.empty())
    out += "\n## Fits\n\n| series | a k^b: a, MB | b | c sqrt(k): c, MB |\n|---|---|---|---|\n";
  for (const Fit& f : report.fits)
    out += fmt::format("| {} | {:.0f} | {:.2f} | {:.0f} |\n", f.series, f.factor, f.exponent,
                       f.sqrt_factor);
  std::string row;
  for (const Result& r : report.results) {
    const Case& c = r.about;
    if (r.row != row)
      out += fmt::format(
          "\n## {}\n\n| model | depth | batch | input | variant | method | records | "
          "saved tensors | saved MB | peak MB | reserved MB | recompute FLOPs | "
          "modelled time | measured peak | process MB | step | time on top |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
          r.row);
    row = r.row;
    const std::string method =
        r.budget ? fmt::format("{} {:.0f} MB", r.method, megabytes(r.budget)) : r.method;
    const char* measured = !r.real ? "" : r.real->peak == r.peak ? "equal" : "DIFFERS";
    out += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:+.1f} % | "
        "{:+.1f} % | {} | {} | {} | {} |\n",
        c.model, c.depth, c.batch, c.input, variant(c), method, r.tape.records,
        r.tape.saved_tensors, megabytes(r.tape.saved_bytes), megabytes(r.peak),
        megabytes(r.reserved), 100 * r.recompute, 100 * r.modelled, measured,
        r.real ? fmt::format("{:.1f}", megabytes(r.real->process)) : "", step_time(r),
        time_on_top(r));
  }
  return out;
}

void write_report(const Report& report, const std::filesystem::path& folder,
                  const std::string& name) {
  std::filesystem::create_directories(folder);
  write_file(folder / (name + ".json"), to_json(report).dump(1) + "\n");
  write_file(folder / (name + ".csv"), to_csv(report));
  write_file(folder / (name + ".md"), to_markdown(report));
  write_file(folder / (name + ".html"), to_html(report));
  int number = 0;
  for (const Chart& chart : charts_of(report))
    write_file(folder / fmt::format("{}-{}.svg", name, ++number), to_picture(chart));
}

}  // namespace rw::memory
