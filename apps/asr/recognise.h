// Prints the words in sound files, by a recogniser from a file.
#pragma once

#include <string>
#include <vector>

#include "../../trainer/program/program.h"

namespace rw {

struct Recognise {
  DeviceOptions device;
  std::vector<std::string> files;
  std::string model;    // empty: default_recognizer()
  double chunk = 0.32;  // seconds that are computed at a time

  void add_to(CLI::App& app);
  void run() const;
};

}  // namespace rw
