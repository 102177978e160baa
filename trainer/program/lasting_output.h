// Standard output that outlasts its reader.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>

namespace rw {

// From its construction on, printing to stdout never fails and never ends the process: what cannot
// be written (`| head`, a full disk, a closed descriptor) is dropped. A training run that lost its
// terminal still saves its model. SIGPIPE is ignored.
class LastingOutput {
 public:
  LastingOutput();
  ~LastingOutput() { finish(); }
  LastingOutput(const LastingOutput&) = delete;
  LastingOutput& operator=(const LastingOutput&) = delete;

  // Back to the plain stdout. The errno of the first write that failed, or 0. The stream in its
  // place stays open: a library that was loaded meanwhile, as GPU drivers are, may have noted it,
  // and use it when the process ends.
  int finish();

 private:
  std::FILE* before_;
};

// With --json-lines standard output has lines of JSON only: what a LastingOutput is given from here
// on is for people, and goes to standard error.
void begin_json_lines();
bool has_json_lines();
void print_json_line(const nlohmann::json& json);

}  // namespace rw
