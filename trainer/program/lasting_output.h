// Standard output that outlives its reader.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>

namespace rw {

// From its construction on, printing to stdout never fails and never ends the process: text that
// cannot be written (`| head`, a full disk, a closed descriptor) is dropped. So a training run that
// lost its terminal still saves its model. SIGPIPE is ignored.
class LastingOutput {
 public:
  LastingOutput();
  ~LastingOutput() { finish(); }
  LastingOutput(const LastingOutput&) = delete;
  LastingOutput& operator=(const LastingOutput&) = delete;

  // Restores the plain stdout and returns the errno of the first write that failed, or 0. The
  // stream that replaced it stays open, since a library that was loaded meanwhile, such as a GPU
  // driver, may have noted it and use it when the process ends.
  int finish();

 private:
  std::FILE* before_;
};

// Makes standard output consist of lines of JSON only, as --json-lines asks for: texts for people
// that a LastingOutput gets from here on go to standard error.
void begin_json_lines();
bool has_json_lines();
void print_json_line(const nlohmann::json& json);

}  // namespace rw
