#include "core/arena/pool.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr uint64_t smallest_block = uint64_t{16} << 20;
constexpr uint64_t most_ahead = uint64_t{1} << 30;  // of a block that nothing needs yet
constexpr uint64_t smallest_shared = uint64_t{64} << 10, largest_shared = uint64_t{4} << 20;

// Both ranges may overlap where it goes down.
void copy_down(Backend& backend, const Arena::Range& from, const Arena::Range& to) {
  constexpr uint64_t most_pieces = 64, most_on_host = uint64_t{4} << 20;
  const bool overlaps = from.block == to.block && to.offset < from.offset + from.size &&
                        from.offset < to.offset + to.size;
  const uint64_t step = overlaps ? from.offset - to.offset : from.size;
  const bool through_host = from.size / step > most_pieces;
  if (through_host && backend.is_dry()) return;
  const uint64_t piece = through_host ? most_on_host : step;
  std::vector<std::byte> bytes(through_host ? std::min(piece, from.size) : 0);
  for (uint64_t at = 0; at < from.size; at += piece) {
    const uint64_t size = std::min(piece, from.size - at);
    const BufferRange source{from.block, from.offset + at, size};
    const BufferRange target{to.block, to.offset + at, size};
    if (through_host) {
      backend.read(source, bytes.data());
      backend.write(target, bytes.data());
    } else {
      backend.copy(source, target);
    }
  }
}

}  // namespace

MemoryPool::MemoryPool(Backend& backend, uint64_t limit, Allocations places)
    : backend_(backend),
      places_(std::move(places)),
      limit_(limit),
      arena_(alignment()),
      lasting_(alignment()),
      host_(alignment()),
      layouts_(
          arena_, backend.info().max_block_bytes,
          [this](uint64_t bytes) { return add_block(arena_, bytes); }, [this] { trim(); }) {}

Arena& MemoryPool::arena_of(Part part) {
  return part == Part::host ? host_ : part == Part::lasting ? lasting_ : arena_;
}

std::optional<MemoryPool::Allocation> MemoryPool::take(uint64_t bytes, Part part,
                                                       const Reclaim& reclaim) {
  Allocation taken{.range = {}, .part = part};
  if (part == Part::host) {
    const std::optional<Arena::Range> range = take_apart(host_, bytes);
    if (!range) return std::nullopt;
    taken.range = *range;
    return taken;
  }
  const uint64_t size = size_of(bytes);
  std::optional<Arena::Range> place;
  bool outlives = part == Part::lasting;
  if (!outlives) std::tie(place, outlives) = layouts_.propose(bytes, size, taken.ticket);
  bool is_fresh = false;
  while (!find(bytes, place, outlives, taken)) {
    const bool has_moved = move(size) || (!std::exchange(is_fresh, true) && move_afresh(size));
    if (!has_moved && !(reclaim && reclaim(size))) return std::nullopt;
  }
  step_peak_ = std::max(step_peak_, live());
  return taken;
}

// Where it is proposed, else where there is a hole, or a new block.
bool MemoryPool::find(uint64_t bytes, std::optional<Arena::Range>& place, bool outlives,
                      Allocation& taken) {
  std::optional<Arena::Range> range;
  if (outlives) range = take_apart(lasting_, bytes);
  taken.part = range ? Part::lasting : Part::steps;
  if (!range && place) {
    range = arena_.allocate_at(place->block, place->offset, place->size);
    if (!range) layouts_.missed();
    place.reset();
  }
  if (!range) return take_anywhere(bytes, taken);
  taken.range = *range;
  return true;
}

std::optional<MemoryPool::Allocation> MemoryPool::adopt(const std::shared_ptr<std::byte>& memory,
                                                        uint64_t bytes) {
  const std::optional<uint32_t> block = backend_.adopt_block(memory, bytes);
  if (!block) return std::nullopt;
  return Allocation{.range = {*block, 0, bytes}, .part = Part::outside};
}

void MemoryPool::release(const Allocation& place) {
  if (place.part == Part::outside) return backend_.free_block(place.range.block);
  arena_of(place.part).free(place.range);
  layouts_.freed(place.ticket);
}

// In an arena apart from what steps need.
std::optional<Arena::Range> MemoryPool::take_apart(Arena& arena, uint64_t bytes) {
  if (const auto range = arena.allocate(bytes)) return range;
  // A value that an optimizer moved into its slabs leaves whole blocks behind.
  for (const uint32_t block : arena.remove_free_blocks()) backend_.free_block(block);
  const uint64_t size = std::max(arena_.round_up(bytes), alignment());
  // Small things share blocks that grow with their number and hold some of this size to the end.
  const uint64_t shared = std::clamp(arena.reserved() / 16, smallest_shared, largest_shared);
  const bool is_shared = size < shared && add_block(arena, shared / size * size);
  if (!is_shared && !add_block(arena, size)) return std::nullopt;
  return arena.allocate(bytes);
}

bool MemoryPool::take_anywhere(uint64_t bytes, Allocation& taken) {
  std::optional<Arena::Range> range = arena_.allocate(bytes);
  if (!range && grow(bytes)) range = arena_.allocate(bytes);
  if (!range) {
    trim();  // free blocks may be too small for this request and yet fill the limit
    if (grow(bytes)) range = arena_.allocate(bytes);
  }
  if (!range && (range = lasting_.allocate(bytes))) taken.part = Part::lasting;
  if (range) taken.range = *range;
  return range.has_value();
}

uint64_t MemoryPool::most() const {
  const auto bound = [](uint64_t bytes) { return bytes ? bytes : UINT64_MAX; };
  return std::min(bound(limit_), bound(budget_));
}

uint64_t MemoryPool::room() const {
  return most() - std::min(most(), reserved());
}

void MemoryPool::set_limit(uint64_t bytes) {
  limit_ = bytes;
  keep_within_limits();
}

void MemoryPool::set_budget(uint64_t bytes) {
  budget_ = bytes;
  keep_within_limits();
}

void MemoryPool::keep_within_limits() {
  if (reserved() > most()) trim();
  if (reserved() > most() && live() <= most()) move_afresh(0);
}

// Blocks whose values stay where they are: somebody has the address of one.
std::set<uint32_t> MemoryPool::pinned_blocks(const std::vector<Allocation*>& places) {
  std::set<uint32_t> blocks;
  for (const Allocation* place : places)
    if (place->pins > 0) blocks.insert(place->range.block);
  return blocks;
}

// Moves values so that steps find a hole of `size` bytes. Queued work finds values where they were,
// since the queue is in order.
bool MemoryPool::move(uint64_t size) {
  const auto key = [](const Arena::Range& range) { return std::pair(range.block, range.offset); };
  std::map<std::pair<uint32_t, uint64_t>, Allocation*> there;
  std::vector<Arena::Range> taken;
  const std::vector<Allocation*> places = places_();
  const std::set<uint32_t> left = pinned_blocks(places);
  for (Allocation* place : places) {
    if (place->part != Part::steps || left.contains(place->range.block)) continue;
    there[key(place->range)] = place;
    taken.push_back(place->range);
  }
  const std::vector<Move> moves = compact(arena_, taken, size, room(), left);
  for (const auto& [from, to] : moves) {
    Allocation& place = *there.at(key(from));
    copy_down(backend_, from, to);
    arena_.free(from);
    place.range = arena_.allocate_at(to.block, to.offset, to.size).value();
    ++moves_;
    moved_ += from.size;
  }
  return !moves.empty();
}

// All values go into fresh blocks, with room for `size` bytes more: for blocks of sizes that do not
// suit. The backend moves them, or they go through the host, and the blocks are given back first.
// Without a limit there would be other blocks.
bool MemoryPool::move_afresh(uint64_t size) {
  if (most() == UINT64_MAX) return false;
  std::vector<Allocation*> places = places_();
  const std::set<uint32_t> left = pinned_blocks(places);
  std::erase_if(places, [&](const Allocation* p) { return left.contains(p->range.block); });
  std::ranges::sort(places, {}, [](const Allocation* p) {
    return std::tuple(p->part != Part::lasting, p->range.block, p->range.offset);
  });
  std::vector<BufferRange> values;
  std::vector<uint64_t> sizes;
  for (const Allocation* place : places) {
    values.push_back({place->range.block, place->range.offset, place->range.size});
    sizes.push_back(place->range.size);
  }
  // No more than is held already, where that does.
  uint64_t kept = 0;
  for (const uint32_t block : left) kept += block_sizes()[block];
  const uint64_t needed = kept + std::accumulate(sizes.begin(), sizes.end(), size);
  if (kept > most()) return false;
  const uint64_t total = std::min(most(), std::max(reserved(), needed)) - kept;
  uint64_t largest = backend_.info().max_block_bytes;
  auto [blocks, ranges] = lay_afresh(sizes, size, largest, total, alignment());
  if (blocks.empty()) return false;
  std::optional<uint32_t> packed;
  if (blocks.size() == 1) packed = backend_.repack(values, blocks.front());
  std::vector<std::vector<std::byte>> contents;
  for (const BufferRange& value : values) {
    if (packed || backend_.is_dry()) break;
    contents.emplace_back(value.size);
    backend_.read(value, contents.back().data());
  }
  for (Allocation* place : places) {
    arena_of(place->part).free(place->range);
    *place = {.range = {}, .ticket = place->ticket};
  }
  // A driver may have no piece as large as those that it got back, taken together.
  while (!blocks.empty() && !lay(places, blocks, ranges, packed)) {
    largest = std::min(largest, blocks.front()) / 2;
    std::tie(blocks, ranges) = lay_afresh(sizes, 0, largest, total, alignment());
  }
  check<DeviceError>(!blocks.empty() || places.empty(), "memory",
                     "'{}' must allocate {} bytes that it has just freed, got a refusal ({}): "
                     "their contents are lost",
                     backend_.info().name, total, refusal_);
  for (size_t i = 0; i < contents.size(); ++i) {
    const Arena::Range& to = places[i]->range;
    backend_.write({to.block, to.offset, to.size}, contents[i].data());
  }
  for (const uint64_t bytes : sizes) moved_ += bytes;
  moves_ += sizes.size();
  return true;
}

// False: the backend gives no such blocks. `packed`: the one that it has made of all others.
bool MemoryPool::lay(const std::vector<Allocation*>& places, const std::vector<uint64_t>& blocks,
                     const std::vector<Arena::Range>& ranges, std::optional<uint32_t> packed) {
  std::vector<uint32_t> numbers;
  if (packed) {
    for (Arena* arena : {&arena_, &lasting_}) arena->remove_free_blocks();
    arena_.add_block(*packed, blocks.front());
    numbers = {*packed};
  } else {
    trim();
  }
  for (size_t i = numbers.size(); i < blocks.size(); ++i) {
    const std::optional<uint32_t> number = add_block(arena_, blocks[i]);
    if (!number) return false;
    numbers.push_back(*number);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [block, offset, size] = ranges[i];
    places[i]->range = arena_.allocate_at(numbers[block], offset, size).value();
  }
  return true;
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
  const uint64_t ahead =
      std::min({std::max(arena_.reserved() / 2, smallest_block), largest / 4, most_ahead});
  const uint64_t wish = std::max({need, expected, ahead});
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

void MemoryPool::reset_peak() {
  step_peak_ = live();
  moved_ = 0;
}

void MemoryPool::end_step() {
  layouts_.end_step();
  last_step_peak_ = std::exchange(step_peak_, live());
}

}  // namespace rw
