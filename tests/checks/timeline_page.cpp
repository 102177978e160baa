// Writes the page of a made-up trace, for tests/checks/check_timeline.py.
// Usage: timeline_page OUT.html [layers]. 0 layers: an empty trace.
#include <cstdio>
#include <cstdlib>

#include "core/base/error.h"
#include "planner/timeline/timeline.h"
#include "tests/planner/trace_fixture.h"

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: timeline_page OUT.html [layers]\n");
    return 2;
  }
  try {
    const int layers = count > 2 ? std::atoi(arguments[2]) : 24;
    rw::MemoryTrace trace;
    if (layers > 0) {
      trace = rw::test::training_trace(layers);
      trace.tensors[1].op = "</script><b>bold";  // must stay text
    }
    rw::write_timeline_html(arguments[1], trace);
  } catch (const rw::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
