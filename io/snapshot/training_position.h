// A place in the work of a training loop.
#pragma once

#include <cstdint>
#include <string>

namespace rw {

// Where in its work a training loop is. The snapshot keeps it as it is given.
struct TrainingPosition {
  int64_t step = 0;              // names the file
  int64_t epoch = 0, index = 0;  // the next batch
  std::string json = "{}";       // what else the loop wants to know again
};

}  // namespace rw
