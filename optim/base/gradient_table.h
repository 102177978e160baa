// The places of gradients: backward makes each one wherever there is room, and kernels find them
// through a table of chunks, so that one dispatch reads a whole run of parameters.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "../../core/tensor/launch.h"
#include "parameters.h"

namespace rw {

class GradientTable {
 public:
  // A parameter whose gradient is needed, or a part of one; in elements.
  struct Entry {
    Tensor parameter;
    size_t run = 0;                    // runs come in order
    int64_t offset = 0;                // of the part in its run
    int64_t begin = 0;                 // of the part in the parameter
    int64_t size = parameter.numel();  // of the part
    size_t slot = 0;                   // the parameter's number among the optimizer's
  };
  // The rows of a run. Those whose gradients lie in one block of memory are neighbours.
  struct Run {
    uint32_t first = 0, rows = 0;
    std::vector<int32_t> begins = {0};  // by parameter of the run, and the end: its first chunk
  };
  // The rows of one run whose gradients lie in one block of memory: one dispatch reads them.
  struct Part {
    size_t run = 0;
    MemoryRange gradients;
    uint32_t first = 0, rows = 0;
  };
  // The parts of a run, and the device's lock: gradients stay in place while it lives. Loop over it
  // with dispatches that allocate nothing: offloaded parameters of the run are on the device.
  class Parts {
   public:
    Parts(Device::Hold lock, std::vector<Part> parts)
        : lock_(std::move(lock)), parts_(std::move(parts)) {}
    auto begin() const { return parts_.begin(); }
    auto end() const { return parts_.end(); }

   private:
    Device::Hold lock_;
    std::vector<Part> parts_;
  };

  explicit GradientTable(std::vector<Entry> entries);
  static GradientTable of(const FlatParameters& parameters);

  // Finds the current gradients and brings the table up to date. False if there are none. Throws
  // AutogradError for gradients of another device.
  bool locate();
  // The same for one run, whose gradients come to the device if they are away, unless this is a
  // HostWorkScope; the knowledge of the others stays.
  bool locate(size_t run);

  // Whether all parameters had a gradient when they were located together.
  bool has_all() const;
  // The number of the first chunk of a parameter, and of the chunk behind its last one.
  uint32_t first_chunk(size_t slot) const { return slot_chunks_[slot]; }
  uint32_t end_chunk(size_t slot) const { return slot_chunks_[slot + 1]; }

  const std::vector<Run>& runs() const { return runs_; }
  Parts parts(size_t run);
  const Tensor& table() const { return table_; }  // i32 [rows, CHUNK_ROW]
  uint32_t shift() const { return shift_; }  // a chunk has at most REWIND_FLAT << shift elements

  // Returns the statistics of the gradients that update_prepare reads: sums of squares, overflow
  // flags and the scales of the sums, rows() of each, in a fixed order of summation. f32 [3,
  // rows()].
  Tensor stats();
  // The same if only one run's rows are made; those of the others stay. Returns the run's overflow
  // flags.
  Tensor stats(size_t run);
  const Tensor& all_stats() const { return stats_; }  // as they were made last
  void clear_stats();                                 // as if no gradient had come
  // Makes statistics of which only the scales mean something: those of gradients in some runs.
  void set_stats(const std::vector<bool>& runs);
  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }

 private:
  struct Row {
    int32_t begin = 0, grad = 0, size = 0, number = 0;
    bool operator==(const Row&) const = default;
  };
  // For entries [first, end).
  std::map<uint32_t, MemoryRange> blocks(size_t first, size_t end) const;
  bool locate(size_t first, size_t end);
  void bring_parameters(size_t run) const;
  int64_t chunk() const { return int64_t{REWIND_FLAT} << shift_; }  // its most elements
  void write_rows(size_t entry, uint32_t first, const BufferRange& memory);
  [[nodiscard]] Device::Hold hold(std::optional<size_t> run);
  void upload(uint32_t first, uint32_t end);
  void launch_stats(const MemoryRange& gradients, uint32_t first, uint32_t rows) const;

  std::vector<Entry> entries_;
  std::vector<uint32_t> slot_chunks_;   // by slot, and the end
  std::vector<uint32_t> first_chunks_;  // by entry, and the end: the numbers of its chunks
  std::vector<Run> runs_;
  uint32_t shift_ = 0;
  std::vector<Row> rows_, uploaded_;
  std::vector<Part> parts_;
  bool is_whole_ = false;       // all runs were located together
  bool are_offloaded_ = false;  // parameters lie in host memory
  Tensor table_, stats_;
};

}  // namespace rw
