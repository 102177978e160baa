#include "core/tensor/launch.h"

#include <algorithm>
#include <bit>

#include "core/tensor/overlap.h"

namespace rw {

namespace {

// The storages of a call, and the first of its tensors.
struct Storages {
  const Tensor* first = nullptr;
  std::array<Storage*, 8> all, written;
  size_t count = 0, writes = 0;
  uint64_t unread = 0;  // as KernelCall::unread
  bool may_be_away = false;
};

// A kernel's threads run in any order: each byte that one writes has one place, and no thread sees
// it through another view.
void check_written(const char* kernel, const Arg& to, std::span<const Arg> args) {
  check<ValueError>(to.tensor->is_contiguous() || !overlaps_itself(*to.tensor), op_or(kernel),
                    "the elements of an operand that is written must not overlap in memory, got {} "
                    "with strides {}; write into a contiguous copy",
                    *to.tensor, to.tensor->strides());
  const Storage* storage = to.tensor->impl().storage.get();
  for (const Arg& other : args) {
    if (&other == &to || !other.tensor || other.tensor->impl().storage.get() != storage) continue;
    check<ValueError>(
        !overlap_in_part(*to.tensor, *other.tensor), op_or(kernel),
        "an operand that is written must not overlap another one, got {} and {}; copy one of them",
        *to.tensor, *other.tensor);
  }
}

Storages storages_of(const char* kernel, std::span<const Arg> args) {
  Storages found;
  for (const Arg& arg : args) {
    if (!arg.tensor) {
      found.unread += arg.memory.unread;
      continue;
    }
    if (!found.first) found.first = arg.tensor;
    check_devices(kernel, *found.first, *arg.tensor);
    Storage* storage = found.all[found.count++] = arg.tensor->impl().storage.get();
    found.may_be_away |= storage->keeper() || storage->is_swapped_out();
    if (arg.access == Access::read) continue;
    check_written(kernel, arg, args);
    found.written[found.writes++] = storage;
  }
  return found;
}

// Memory that is away is brought back before the call says where it lies.
void swap_in(std::span<Storage* const> storages) {
  for (size_t i = 0; i < storages.size(); ++i) {
    const std::shared_ptr<StorageKeeper> keeper = storages[i]->keeper();
    const auto is_same = [&](const Storage* s) { return s->keeper() == keeper; };
    if (keeper && std::ranges::none_of(storages.first(i), is_same)) keeper->need(storages);
  }
  for (Storage* storage : storages) {
    if (!storage->is_swapped_out()) continue;
    if (!storage->is_on_host())
      fail<DeviceError>(op_or("user"),
                        "{} {} must be in the device's memory, got one whose keeper is gone",
                        name(storage->dtype()), storage->shape());
    storage->device().swap_in(*storage);
  }
}

// The aligned range of the block that covers the view, and the element offset inside it.
Binding binding_of(const Arg& arg, const Device& device, uint64_t alignment, uint32_t& offset) {
  if (!arg.tensor) {
    check<DeviceError>(arg.memory.moves == device.moves(), op_or("user"),
                       "values must lie where they were found, got {} moves since then",
                       device.moves() - arg.memory.moves);
    return {arg.memory.range, arg.memory.dtype, arg.access};
  }
  const TensorImpl& t = arg.tensor->impl();
  const uint64_t element = size_of(t.dtype);
  const Arena::Range& whole =
      HostWorkScope::is_open() ? Device::where(*t.storage) : t.storage->range();
  const uint64_t begin = static_cast<uint64_t>(t.offset) * element;
  const uint64_t aligned = begin & ~(alignment - 1);  // powers of two, as are the elements' sizes
  const uint64_t end = begin + static_cast<uint64_t>(extent(*arg.tensor)) * element;
  offset = static_cast<uint32_t>((begin - aligned) >> std::countr_zero(element));
  return {{whole.block, whole.offset + aligned, end - aligned}, t.dtype, arg.access};
}

// Writes the bindings of a call, and the element offset of each to the head of its parameters.
void bind_all(std::span<const Arg> args, const Device& device, Binding* bindings,
              std::span<std::byte> params) {
  const uint64_t alignment = device.info().alignment;
  for (size_t i = 0; i < args.size(); ++i) {
    uint32_t offset = 0;
    std::construct_at(bindings + i, binding_of(args[i], device, alignment, offset));
    std::memcpy(params.data() + i * sizeof(uint32_t), &offset, sizeof(offset));
  }
}

}  // namespace

void detail::launch(const char* kernel, std::span<const Arg> args, std::span<std::byte> params,
                    const Launch& how) {
  check(args.size() <= 8, kernel, "a kernel takes at most 8 tensors, got {}", args.size());
  const auto gets_nothing = [](const Arg& arg) {
    return arg.access == Access::read || (arg.tensor && arg.tensor->numel() == 0);
  };
  if (std::ranges::all_of(args, gets_nothing)) return;     // backends divide by sizes
  alignas(Binding) std::byte memory[8 * sizeof(Binding)];  // which nothing needs to clear
  auto* const bindings = reinterpret_cast<Binding*>(memory);
  const Storages storages = storages_of(kernel, args);
  Device& device = storages.first->device();
  if (storages.may_be_away && !HostWorkScope::is_open())
    swap_in({storages.all.data(), storages.count});
  for (size_t i = 0; i < storages.writes; ++i) announce_write(*storages.written[i]);
  const auto held = device.hold();  // values keep their places until the call is queued
  bind_all(args, device, bindings, params);
  KernelCall call{kernel,
                  {bindings, args.size()},
                  params,
                  how.threads,
                  {how.variant.values.data(), how.variant.count},
                  how.flops,
                  storages.unread};
  const std::shared_ptr<const Preparation> preparation = device.prepare(call);
  call.preparation = preparation.get();
  std::shared_ptr<Storage> workspace;
  if (const uint64_t bytes = preparation ? preparation->workspace_bytes : 0) {
    const PurposeScope purpose(Purpose::workspace);
    const PlaceScope place(context().works);
    workspace = device.allocate({static_cast<int64_t>(bytes)}, DType::u8);
    call.workspace = {workspace->range().block, workspace->range().offset, bytes};
    bind_all(args, device, bindings, params);  // values may have moved to make room for it
  }
  device.run(call, {storages.written.data(), storages.writes});
}

uint32_t flat_threads(int64_t n) {
  return static_cast<uint32_t>((int64_t{count32(n, op_or("user"))} + REWIND_FLAT - 1) /
                               REWIND_FLAT);
}

bool is_flat(const Tensor& t) {
  return t.is_contiguous() && t.impl().offset % REWIND_FLAT == 0;
}

void copy_dims(const Shape& from, uint32_t (&to)[REWIND_MAX_DIMS]) {
  for (int i = 0; i < from.rank(); ++i) to[i] = count32(from[i], op_or("user"));
}

}  // namespace rw
