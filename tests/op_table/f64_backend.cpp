#include "tests/op_table/f64_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "core/tensor/tensor.h"

// The kernels' second compilation: rw::reference is called reference_f64 there (tests/meson.build).
namespace rw::reference_f64 {
void run_kernel(const KernelCall& call, std::span<std::byte* const> memory);
}

namespace rw::test {

namespace {

F64Backend* running = nullptr;  // whose kernel runs

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Returns the value of the element's own bits.
float stored(const std::byte* at, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::f16 ? from_half(bits) : from_brain(bits);
}

float rounded(double value, DType dtype) {
  const auto f = static_cast<float>(value);
  return dtype == DType::f32   ? f
         : dtype == DType::f16 ? from_half(to_half(f))
                               : from_brain(to_brain(f));
}

}  // namespace

F64Backend::F64Backend() : inner_(make_reference_backend()) {}
F64Backend::~F64Backend() = default;

uint32_t F64Backend::allocate_block(uint64_t bytes) {
  const uint32_t block = inner_->allocate_block(bytes);
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  blocks_[block] = {const_cast<std::byte*>(inner_->host_bytes({block, 0, bytes})),
                    std::vector<double>(bytes / 2, unknown)};
  return block;
}

void F64Backend::free_block(uint32_t block) {
  blocks_.at(block) = {};
  inner_->free_block(block);
}

std::byte* F64Backend::bytes_of(BufferRange range) const {
  const auto& [bytes, wide] = blocks_.at(range.block);
  check<DeviceError>(range.offset + range.size <= 2 * wide.size(), "f64", "outside of block {}",
                     range.block);
  return bytes + range.offset;
}

const F64Backend::Block& F64Backend::block_of(const std::byte* at) const {
  const auto holds = [&](const Block& b) {
    return at >= b.bytes && at < b.bytes + 2 * b.wide.size();
  };
  if (latest_ < blocks_.size() && holds(blocks_[latest_])) return blocks_[latest_];
  latest_ =
      static_cast<size_t>(std::find_if(blocks_.begin(), blocks_.end(), holds) - blocks_.begin());
  return blocks_.at(latest_);
}

void F64Backend::write(BufferRange target, const void* source) {
  inner_->write(target, source);
  auto& wide = blocks_.at(target.block).wide;
  std::fill_n(wide.begin() + static_cast<std::ptrdiff_t>(target.offset / 2), (target.size + 1) / 2,
              unknown);
}

void F64Backend::copy(BufferRange source, BufferRange target) {
  inner_->copy(source, target);
  const auto from =
      blocks_.at(source.block).wide.begin() + static_cast<std::ptrdiff_t>(source.offset / 2);
  std::copy_n(
      std::vector<double>(from, from + static_cast<std::ptrdiff_t>(source.size / 2)).begin(),
      source.size / 2,
      blocks_.at(target.block).wide.begin() + static_cast<std::ptrdiff_t>(target.offset / 2));
}

// Values that were written as bits, or as integers, have no double that belongs to them.
double F64Backend::get(const std::byte* at, DType dtype) const {
  const Block& block = block_of(at);
  const double wide = block.wide[static_cast<size_t>(at - block.bytes) / 2];
  const float narrow = stored(at, dtype);
  return rounded(wide, dtype) == narrow ? wide : double{narrow};
}

void F64Backend::set(std::byte* at, DType dtype, double value) {
  const Block& block = block_of(at);
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::f32) {
    std::memcpy(at, &narrow, sizeof narrow);
  } else {
    const uint16_t bits = dtype == DType::f16 ? to_half(narrow) : to_brain(narrow);
    std::memcpy(at, &bits, sizeof bits);
  }
  const_cast<Block&>(block).wide[static_cast<size_t>(at - block.bytes) / 2] = value;
}

void F64Backend::see(const std::byte* at, size_t bytes, bool writes) {
  if (!declared_) return;
  ++accesses_;
  const Block& block = block_of(at);
  const auto number = static_cast<uint32_t>(&block - blocks_.data());
  const auto begin = static_cast<uint64_t>(at - block.bytes);
  const bool is_declared =
      std::any_of(may_touch_.begin(), may_touch_.end(), [&](const vulkan::Use& b) {
        return b.block == number && b.begin <= begin && begin + bytes <= b.end &&
               (b.writes || !writes);
      });
  if (!is_declared && culprits_.size() < 8)
    culprits_.push_back(fmt::format("{} {} byte {} of block {}", kernel_,
                                    writes ? "writes" : "reads", begin, number));
}

void F64Backend::run(const KernelCall& call) {
  std::array<std::byte*, 8> memory{};
  for (size_t i = 0; i < call.bindings.size(); ++i) memory[i] = bytes_of(call.bindings[i].range);
  if (declared_) may_touch_ = declared_(call);
  kernel_ = call.kernel;
  running = this;
  reference_f64::run_kernel(call, memory);
}

std::vector<double> F64Backend::values(const Tensor& t) const {
  const Arena::Range& range = t.impl().storage->range();
  const std::byte* first =
      blocks_.at(range.block).bytes + range.offset + t.impl().offset * size_of(t.dtype());
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = get(first + i * size_of(t.dtype()), t.dtype());
  return values;
}

void F64Backend::set_values(const Tensor& t, const std::vector<double>& values) {
  const Arena::Range& range = t.impl().storage->range();
  std::byte* first =
      blocks_.at(range.block).bytes + range.offset + t.impl().offset * size_of(t.dtype());
  for (size_t i = 0; i < values.size(); ++i)
    set(first + i * size_of(t.dtype()), t.dtype(), values[i]);
}

}  // namespace rw::test

namespace rw::reference_f64 {

double real_at(const std::byte* at, DType dtype) {
  return test::running->get(at, dtype);
}
void set_real_at(std::byte* at, DType dtype, double value) {
  test::running->set(at, dtype, value);
}
void witness(const std::byte* at, size_t bytes, bool writes) {
  test::running->see(at, bytes, writes);
}

}  // namespace rw::reference_f64
