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
// to the storage (a load, an average that is put in place) is made again when it is asked for. Any
// thread may ask.
class WeightCopies {
 public:
  explicit WeightCopies(WeightCopyUse use) : use_(use) {}

  // The copies of the storage that x lies in, or null.
  static WeightCopies* of(const Tensor& x) { return x.impl().storage->copies().get(); }

  WeightCopyUse use() const { return use_; }  // as it was made with
  // Whether x is dense in some order of its axes, so that a copy can be as it is.
  static bool can_copy(const Tensor& x);
  // x, of the storage, as `dtype`: a view of a copy, with x's shape and strides. What cannot be
  // copied so is cast to a new tensor.
  Tensor view(const Tensor& x, DType dtype);
  // Call it after every update of `slab`, the whole storage: copies that were used since the last
  // update are made again, neighbours at once; the others free their memory.
  void update(const Tensor& slab);
  uint64_t bytes() const;  // of the copies that there are

 private:
  // A copy of elements [begin, end) of the storage.
  struct Part {
    int64_t begin = 0, end = 0;
    DType dtype = DType::f16;
    bool used = false;     // since the last update
    Tensor copy = {};      // [end - begin]
    uint32_t version = 0;  // of the storage that was copied
  };
  static void make(Part& part, const Tensor& source);
  std::vector<Part> joined() const;

  const WeightCopyUse use_;
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

}  // namespace rw
