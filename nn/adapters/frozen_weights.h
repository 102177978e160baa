// Weights that nothing trains, in host memory or in their file.
#pragma once

#include <memory>
#include <vector>

#include "../../core/memory/local_sources.h"
#include "../module.h"

namespace rw {

// A frozen weight, of which all bytes lie in a file.
struct WeightInFile {
  Tensor weight;          // dense, and all of its storage
  FileContents contents;  // of that storage
};

// Keeps the frozen weights of a model in host memory: its parameters that collect no gradients, and
// its buffers, of 64 KiB or more. Each comes to the device when a kernel is about to read it, the
// next one while the device works, and gives its memory back when others want the room; since
// nobody writes it, nothing is copied then. A model that is made and filled under
// init::HostParameters is never on the device as a whole. Bits are those of weights that stay.
class FrozenWeights {
 public:
  // At most `most_bytes` are on the device at a time, beyond which only what one kernel reads; 0:
  // 512 MiB. It must live as long as the model is used. OutOfMemory if the host has no room.
  explicit FrozenWeights(const Module& model, uint64_t most_bytes = 0);

  // The same of weights that stay in their files: a thread reads each from there, the next one
  // while the device works, into host memory for two of them. Nobody may write to them, and those
  // of less than 64 KiB must not be among them. FileError if a file is too short; while they are
  // used also if one was changed, and ValueError if a weight was written to.
  explicit FrozenWeights(const std::vector<WeightInFile>& weights, uint64_t most_bytes = 0);

  // Call it before each step, which is expected to use the weights in the order of the one before.
  void begin_step();
  uint64_t bytes() const { return bytes_; }  // of these weights
  // The file that they come from, with what was read of it; null: they are in host memory.
  const FileSource* file() const { return file_; }

 private:
  uint64_t bytes_ = 0;
  std::unique_ptr<StreamSource> source_;
  const FileSource* file_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

}  // namespace rw
