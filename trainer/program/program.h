// What training programs share: errors as one line, the device's options, JSON reports.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

#include "../../core/base/dtype.h"
#include "../../core/memory/default_device.h"
#include "../../core/memory/device.h"
#include "../../core/memory/memory_trace.h"

namespace CLI {  // its header takes seconds to compile
class App;
}

namespace rw {

// What becomes of a program whose standard output nobody reads any more (`| head`).
enum class Output {
  may_end,   // it goes on to its end: it has more to do than to print
  is_needed  // it ends
};

// Parses, then runs `body`. Anything thrown becomes one line `error: ...` and exit status 1, or 128
// + signal for Interrupted.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body,
                Output output = Output::may_end);

// A line `warning: ...` on standard error.
void warn(const std::string& text);

// --device, --dtype and --memory-limit.
struct DeviceOptions {
  std::string device = "auto";  // as open_backend() takes it
  std::string dtype = "f16";    // of activations and products
  std::string memory_limit;     // bytes of blocks; empty: as many as there are

  void add_to(CLI::App& app);  // the options
  void open() const;  // makes it the default device; a run on the cpu for want of a GPU will say so
  std::unique_ptr<Backend> open_dry() const;  // predicts it
  uint64_t limit() const;                     // bytes, 0: none
  DType parsed_dtype() const;                 // f32, f16 or bf16
};

nlohmann::json memory_json(const MemoryReport& memory);  // its fields
// The default device and where its memory went, for reports.
nlohmann::json device_json(const MemoryReport& memory = default_device()->memory_report());
// Replaces the file whole, or leaves it as it was. Text that is not UTF-8 is made so.
void write_json(const std::string& file, const nlohmann::json& json);

// The report of a run, where its user wants one: a file of JSON where the path ends in .json or is
// that of a pipe or a device, else a folder with report.json and a page, index.html. What is known
// is written before something that may fail; a pipe or a device gets the whole report only.
class ReportFile {
 public:
  explicit ReportFile(std::string path) : path_(std::move(path)) {}  // empty: none is wanted
  std::string folder() const;                                        // empty: it is none
  void write_so_far(const nlohmann::json& json) const;               // not to a pipe or a device
  void write(const nlohmann::json& json) const;         // the whole of it, with --json-lines, too
  void write_timeline(const MemoryTrace& trace) const;  // where there is a folder: memory.html

 private:
  void write_files(const nlohmann::json& json) const;

  std::string path_;
};

}  // namespace rw
