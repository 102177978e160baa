// The frame of training programs: errors as one line, the device's options, JSON reports.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <string>

#include "../../core/base/dtype.h"
#include "../../core/memory/default_device.h"
#include "../../core/memory/device.h"
#include "../../core/memory/memory_trace.h"

namespace CLI {  // the header of CLI11 takes seconds to compile
class App;
}

namespace rw {

// Parses the arguments, then runs `body`. Any exception becomes one line `error: ...` and exit
// status 1, or 128 + signal for Interrupted. When nobody reads its standard output any more
// (`| head`), a program that only prints ends; others, which do more, continue to their end.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body,
                bool only_prints = false);

// Adds the options of a command to `app` and returns its run().
template <class Command>
std::function<void()> add_command(CLI::App& app) {
  const auto command = std::make_shared<Command>();
  command->add_to(app);
  return [command] { command->run(); };
}

// Throws FileError if there is a model at the default place of --save, and the command line does
// not name that place itself: what a run has made stays until its user says otherwise.
void keep_earlier(const CLI::App& command, const std::string& place);

// Prints a line `warning: ...` on standard error.
void warn(const std::string& text);

// The options --device, --dtype and --memory-limit.
struct DeviceOptions {
  std::string device = "auto";  // as for open_backend()
  std::string dtype = "f16";    // of activations and products; empty: the model's files name it
  std::string memory_limit;     // bytes of blocks; empty: as many as there are

  void add_to(CLI::App& app);  // adds the options
  void open() const;  // opens it as the default device; a run on the cpu for want of a GPU says so
  std::unique_ptr<Backend> open_dry() const;  // opens its prediction
  uint64_t limit() const;                     // in bytes, 0: none
  // f32, f16 or bf16. ValueError for others, and where the program has not chosen one yet.
  DType parsed_dtype() const;
};

nlohmann::json memory_json(const MemoryReport& memory);  // the fields of the report
// Describes the default device and its memory for reports.
nlohmann::json device_json(const MemoryReport& memory = default_device()->memory_report());
// Replaces the file as a whole, or leaves it as it was. Text that is not UTF-8 is converted.
void write_json(const std::string& file, const nlohmann::json& json);

// The report of a run, if its user wants one: a JSON file if the path ends in .json or names a pipe
// or a device, else a folder with report.json and a page, index.html. A first part can be written
// before something that may fail; a pipe or a device gets only the whole report.
class ReportFile {
 public:
  explicit ReportFile(std::string path) : path_(std::move(path)) {}  // empty: no report is wanted
  // Empty: the report is no folder.
  std::string folder() const;
  // A pipe or a device gets nothing yet.
  void write_so_far(const nlohmann::json& json) const;
  // Writes the whole report, and with --json-lines prints it.
  void write(const nlohmann::json& json) const;
  // Writes memory.html if the report is a folder.
  void write_timeline(const MemoryTrace& trace) const;

 private:
  void write_files(const nlohmann::json& json) const;

  std::string path_;
};

}  // namespace rw
