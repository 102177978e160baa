// 16-bit copies of f32 parameters, made once per update instead of by every forward pass.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tensor.h"

namespace rw {

// When Autocast takes parameters of an optimizer from copies that outlive the forward pass.
enum class WeightCopyUse : uint8_t {
  never,             // every use casts
  outside_segments,  // uses in checkpoint segments cast: their memory is the segment's to drop
  always,            // every use reads a copy
};

// The copies of one storage, a slab of an optimizer. A part is copied when it is first asked for;
// update() makes the copies of neighbours in one dispatch. A copy that is older than the last write
// to the storage (a load, or an average that takes its place) is made again when it is asked for.
// Any thread may ask.
class WeightCopies {
 public:
  explicit WeightCopies(WeightCopyUse use);
  ~WeightCopies();

  // Returns the copies of the storage in which x lies, or null.
  static WeightCopies* of(const Tensor& x) { return x.impl().storage->copies().get(); }

  WeightCopyUse use() const { return use_; }  // the use with which it was made
  // Tells whether x is dense in some order of its axes, so that a copy can have the same strides.
  static bool can_copy(const Tensor& x);
  // Returns x, which lies in the storage, as `dtype`: a view of a copy, with x's shape and strides.
  // A tensor that cannot be copied so is cast to a new one.
  Tensor view(const Tensor& x, DType dtype);
  // Call it after every update of `slab`, the whole storage: copies that were used since the last
  // update are made again, neighbours at once; the others free their memory.
  void update(const Tensor& slab);
  uint64_t bytes() const;  // of the existing copies

 private:
  struct Part;

  static void make(Part& part, const Tensor& source);
  std::vector<Part> joined() const;

  const WeightCopyUse use_;
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

}  // namespace rw
