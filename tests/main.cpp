// The test program. With --worker it runs the cases that it is told to, one after the other, for
// tests/run/deal.py.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <unistd.h>

#include "core/base/environment.h"

namespace {

// Runs cases by number: lines of the standard input are numbers of cases, from 1, among those that
// the other options select. After each case, a line `done STATUS` goes to the file descriptor 3, so
// that it stays apart from what the cases print.
int serve(int argc, char** argv) {
  for (std::string line; std::getline(std::cin, line);) {
    doctest::Context context(argc, argv);
    context.setOption("first", line.c_str());
    context.setOption("last", line.c_str());
    const std::string done = "done " + std::to_string(context.run()) + "\n";
    std::cout.flush();
    if (write(3, done.data(), done.size()) < 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Tuning on this machine must not influence tests. Nor do devices that live for a few calls need
  // threads of their own.
  setenv("REWIND_WITHOUT",
         (rw::env_text("REWIND_WITHOUT") + ",tuning,background-pipelines").c_str(), 1);
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--worker") == 0) return serve(argc, argv);
  return doctest::Context(argc, argv).run();
}
