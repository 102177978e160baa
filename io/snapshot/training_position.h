// A place in the work of a training loop.
#pragma once

#include <cstdint>
#include <string>

namespace rw {

// The position of a training loop in its work. The snapshot keeps it as it is given.
struct TrainingPosition {
  int64_t step = 0;              // names the file
  int64_t epoch = 0, index = 0;  // the next batch
  std::string json = "{}";       // other state of the loop
};

}  // namespace rw
