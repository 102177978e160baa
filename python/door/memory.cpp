// Reports of the memory that was used, and forecasts of what a program would use.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include "python/door/door.h"

namespace door {

namespace {

// A report as the library writes it, as a dictionary.
nb::object parsed(const std::string& json) {
  return nb::module_::import_("json").attr("loads")(json);
}

nb::dict forecast_of(const rw::Forecast& f) {
  nb::dict d;
  d["memory"] = parsed(f.memory.json());
  d["peak"] = f.memory.peak;
  d["reserved"] = f.memory.peak_reserved;
  d["flops"] = f.flops();
  d["recompute_share"] = f.recompute_share();
  d["text"] = f.str();
  return d;
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.def(
      "_memory_report",
      [](const std::shared_ptr<rw::Device>& device) {
        ensure_device();
        const rw::MemoryReport r = (device ? device : rw::default_device())->memory_report();
        nb::object report = parsed(r.json());
        report["text"] = r.str();
        return report;
      },
      "device"_a.none() = nb::none());
  m.def(
      "_dry_run",
      [](nb::object program, uint64_t memory_limit, bool pack) {
        ensure_device();
        const Reference function(program);
        std::optional<rw::Forecast> forecast;
        {
          const nb::gil_scoped_release release;
          forecast = rw::plan(
              [&] {
                const nb::gil_scoped_acquire acquire;
                call_python(function);
              },
              {.memory_limit = memory_limit, .pack = pack});
        }
        return forecast_of(*forecast);
      },
      "program"_a, "memory_limit"_a = 0, "pack"_a = true);
  m.def("_largest_within", &rw::largest_within, "needs"_a, "limit"_a, "guess"_a = 1);
  m.def(
      "parse_bytes", [](const std::string& text) { return rw::parse_bytes(text); }, "text"_a,
      "\"6GiB\" in bytes.");
  m.def("format_bytes", &rw::format_bytes, "bytes"_a);
  m.def(
      "_write_timeline",
      [](nb::object program, const std::string& path) {
        ensure_device();
        const std::shared_ptr<rw::Device> device = rw::default_device();
        device->start_trace();
        try {
          program();
        } catch (...) {
          device->stop_trace();
          throw;
        }
        rw::write_timeline_html(path, device->stop_trace());
      },
      "program"_a, "path"_a);
}

}  // namespace door
