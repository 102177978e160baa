#include "core/tensor/quantize.h"

#include <algorithm>

#include "core/blocks/block_type.h"
#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"

namespace rw {

namespace {

int64_t blocks_of(int64_t n) {
  return static_cast<int64_t>(blocks::steps.block_count(static_cast<uint64_t>(n)));
}

void check_float(DType dtype, const char* op) {
  check<DTypeError>(is_float(dtype), op, "only floats are kept in 8 bits, got {}", name(dtype));
}

// Queues the kernel that unpacks x into `y`.
void launch_dequantize(const Arg& y, const QuantizedBlocks& x) {
  const uint32_t n = count32(x.codes.numel(), "dequantize_blocks");
  launch("dequantize_blocks", {y, in(x.codes), in(x.steps)}, kernels::QuantizeBlocksParams{.n = n},
         {.threads = {flat_threads(n), 1, 1}});
}

// The keeper of one storage's contents, which shares it until they are back.
class KeptIn8Bits : public StorageKeeper {
 public:
  KeptIn8Bits(const Storage& storage, QuantizedBlocks values)
      : storage_(&storage), values_(std::move(values)) {}

  void need(std::span<Storage* const> storages) override {
    Storage& storage = **std::ranges::find(storages, storage_);
    const std::shared_ptr<StorageKeeper> self = storage.keeper();
    storage.share_keeper(nullptr);
    Device& device = storage.device();
    const auto held = device.hold();  // it keeps its place until the kernel is queued
    device.swap_in(storage);
    const OpScope op("dequantize");
    const PhaseScope phase(Phase::replay);
    const Arena::Range& place = storage.range();
    launch_dequantize(restored({.range = {place.block, place.offset, storage.bytes()},
                                .dtype = storage.dtype(),
                                .moves = device.moves()}),
                      values_);
  }

 private:
  const Storage* storage_;
  QuantizedBlocks values_;
};

}  // namespace

QuantizedBlocks quantize_blocks(const Tensor& x) {
  check_float(x.dtype(), "quantize_blocks");
  const uint32_t n = count32(x.numel(), "quantize_blocks");
  const auto device = x.device().shared_from_this();
  QuantizedBlocks y{empty(x.shape(), DType::u8, device), empty({blocks_of(n)}, DType::f32, device)};
  launch("quantize_blocks", {in(dense(x)), out(y.codes), out(y.steps)},
         kernels::QuantizeBlocksParams{.n = n}, {.threads = {flat_threads(n), 1, 1}});
  return y;
}

Tensor dequantize_blocks(const QuantizedBlocks& x, DType dtype) {
  check_float(dtype, "dequantize_blocks");
  check<DTypeError>(x.codes.dtype() == DType::u8 && x.steps.dtype() == DType::f32,
                    "dequantize_blocks", "codes must be u8 and steps f32, got {} and {}", x.codes,
                    x.steps);
  check<ShapeError>(x.steps.shape() == Shape{blocks_of(x.codes.numel())}, "dequantize_blocks",
                    "there must be a step for each block of {} codes, got {} for {}",
                    blocks::steps.elements, x.steps, x.codes);
  Tensor y = empty(x.codes.shape(), dtype, x.codes.device().shared_from_this());
  launch_dequantize(out(y), {dense(x.codes), x.steps});
  return y;
}

void keep_in_8_bits(const std::shared_ptr<Storage>& storage) {
  check_float(storage->dtype(), "keep_in_8_bits");
  if (storage->is_swapped_out() || storage->stays()) return;
  const Shape& shape = storage->shape();
  const Tensor values(
      std::make_shared<TensorImpl>(storage, shape, dense_strides(shape), 0, storage->dtype(), 0));
  const OpScope op("quantize");
  const PhaseScope phase(Phase::replay);
  const PurposeScope purpose(Purpose::activation);
  const PlaceScope place(MemoryPlace::device);
  storage->share_keeper(std::make_shared<KeptIn8Bits>(*storage, quantize_blocks(values)));
  storage->device().swap_out(*storage);
}

}  // namespace rw
