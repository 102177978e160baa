#include "rewind/core/memory/pool.h"

#include <algorithm>
#include <utility>

#include "rewind/core/base/error.h"

namespace rw {

namespace {

constexpr uint64_t smallest_block = uint64_t{16} << 20;
constexpr uint64_t smallest_shared = uint64_t{64} << 10, largest_shared = uint64_t{4} << 20;

}  // namespace

MemoryPool::MemoryPool(Backend& backend, uint64_t limit)
    : backend_(backend),
      limit_(limit),
      arena_(alignment()),
      lasting_(alignment()),
      host_(alignment()),
      layouts_({.arena = arena_,
                .largest_block = backend.info().max_block_bytes,
                .grow = [this](uint64_t bytes) { return add_block(arena_, bytes); },
                .trim = [this] { trim(); }}) {}

Arena& MemoryPool::arena_of(Part part) {
  return part == Part::host ? host_ : part == Part::lasting ? lasting_ : arena_;
}

std::optional<MemoryPool::Place> MemoryPool::take(uint64_t bytes, Part part) {
  Place taken;
  if (part == Part::host) {
    const std::optional<Arena::Range> range = take_apart(host_, bytes);
    if (!range) return std::nullopt;
    return Place{.range = *range, .part = part};
  }
  const uint64_t size = size_of(bytes);
  const auto [place, outlives] = part == Part::lasting
                                     ? StepLayouts::Proposal{.outlives = true}
                                     : layouts_.propose(bytes, size, taken.ticket);
  std::optional<Arena::Range> range;
  if (outlives) range = take_apart(lasting_, bytes);
  if (range) taken.part = Part::lasting;
  if (!range && place) {
    range = arena_.allocate_at(place->block, place->offset, size);
    if (!range) layouts_.missed();
  }
  if (!range) range = take_anywhere(bytes);
  if (!range) return std::nullopt;
  taken.range = *range;
  step_peak_ = std::max(step_peak_, live());
  return taken;
}

void MemoryPool::release(const Place& place) {
  arena_of(place.part).free(place.range);
  layouts_.freed(place.ticket);
}

// In an arena apart from what steps need.
std::optional<Arena::Range> MemoryPool::take_apart(Arena& arena, uint64_t bytes) {
  if (const auto range = arena.allocate(bytes)) return range;
  // What an optimizer moved into its slabs leaves whole blocks behind.
  for (const uint32_t block : arena.remove_free_blocks()) backend_.free_block(block);
  const uint64_t size = std::max(arena_.round_up(bytes), alignment());
  // Small things share blocks that grow with their number.
  const uint64_t shared = std::clamp(arena.reserved() / 16, smallest_shared, largest_shared);
  if (!(size < shared && add_block(arena, shared)) && !add_block(arena, size)) return std::nullopt;
  return arena.allocate(bytes);
}

std::optional<Arena::Range> MemoryPool::take_anywhere(uint64_t bytes) {
  if (const auto range = arena_.allocate(bytes)) return range;
  if (grow(bytes)) return arena_.allocate(bytes);
  trim();  // free blocks may be too small for this request and yet fill the limit
  if (grow(bytes)) return arena_.allocate(bytes);
  return std::nullopt;
}

uint64_t MemoryPool::room() const {
  return limit_ ? limit_ - std::min(limit_, reserved()) : UINT64_MAX;
}

std::optional<uint32_t> MemoryPool::add_block(Arena& arena, uint64_t bytes) {
  const bool is_host = &arena == &host_;
  if ((!is_host && bytes > room()) || bytes > backend_.info().max_block_bytes) return std::nullopt;
  try {
    const uint32_t block =
        is_host ? backend_.allocate_host_block(bytes) : backend_.allocate_block(bytes);
    arena.add_block(block, bytes);
    return block;
  } catch (const OutOfMemory& e) {  // the caller tries less, or reports
    refusal_ = e.what();
    return std::nullopt;
  }
}

bool MemoryPool::grow(uint64_t bytes) {
  const uint64_t unit = alignment(), largest = backend_.info().max_block_bytes;
  const uint64_t need = std::max(arena_.round_up(bytes), unit);
  // Blocks grow with use, so that small programs stay small and large ones hold few blocks; a step
  // is taken to need what the last one needed.
  const uint64_t expected = last_step_peak_ - std::min(last_step_peak_, live());
  const uint64_t wish = std::max(
      {need, expected, std::min(std::max(arena_.reserved() / 2, smallest_block), largest / 4)});
  const uint64_t size = std::min({wish, room(), largest}) / unit * unit;
  return (size >= need && add_block(arena_, size)) || add_block(arena_, need);
}

void MemoryPool::trim() {
  for (Arena* arena : {&arena_, &lasting_, &host_})
    for (const uint32_t block : arena->remove_free_blocks()) backend_.free_block(block);
}

std::vector<uint64_t> MemoryPool::block_sizes() const {
  std::vector<uint64_t> sizes = arena_.block_sizes();
  const std::vector<uint64_t> lasting = lasting_.block_sizes();
  sizes.resize(std::max(sizes.size(), lasting.size()));
  for (size_t i = 0; i < lasting.size(); ++i) sizes[i] += lasting[i];
  return sizes;
}

void MemoryPool::end_step() {
  layouts_.end_step();
  last_step_peak_ = std::exchange(step_peak_, live());
}

}  // namespace rw
