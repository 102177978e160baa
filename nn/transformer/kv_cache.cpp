#include "nn/transformer/kv_cache.h"

#include "ops/ops.h"

namespace rw {

KeyValueCache::KeyValueCache(int64_t batch, int64_t heads, int64_t longest, int64_t dim,
                             DType dtype) {
  check<ShapeError>(batch > 0 && heads > 0 && longest > 0 && dim > 0, "KeyValueCache",
                    "sizes must be positive, got ({}, {}, {}, {})", batch, heads, longest, dim);
  check<DTypeError>(is_float(dtype), "KeyValueCache", "needs a float dtype, got {}", name(dtype));
  keys_ = empty({batch, heads, longest, dim}, dtype);
  values_ = empty({batch, heads, longest, dim}, dtype);
}

std::pair<Tensor, Tensor> KeyValueCache::append(const Tensor& k, const Tensor& v) {
  check<AutogradError>(!grad_enabled(), "KeyValueCache",
                       "a cache is written over: use it inside a NoGrad");
  const Shape& room = keys_.shape();
  check<ShapeError>(k.shape() == v.shape() && k.rank() == 4 && k.size(0) == room[0] &&
                        k.size(1) == room[1] && k.size(3) == room[3],
                    "KeyValueCache", "needs k and v [{}, {}, n, {}], got {} and {}", room[0],
                    room[1], room[3], k, v);
  check<ShapeError>(length_ + k.size(2) <= longest(), "KeyValueCache",
                    "there is room for {} tokens, got {} more than {}", longest(), k.size(2),
                    length_);
  const auto added = [&](const Tensor& all) { return slice(all, 2, length_, length_ + k.size(2)); };
  added(keys_).copy_(k);
  added(values_).copy_(v);
  length_ += k.size(2);
  return {slice(keys_, 2, 0, length_), slice(values_, 2, 0, length_)};
}

}  // namespace rw
