// Standard output that outlasts its reader.
#pragma once

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

  // Back to the plain stdout. The errno of the first write that failed, or 0.
  int finish();

 private:
  std::FILE* before_;
  int error_ = 0;
};

}  // namespace rw
