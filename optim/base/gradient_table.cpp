#include "optim/base/gradient_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "ops/ops.h"

namespace rw {

namespace {

int64_t total_of(const std::vector<GradientTable::Entry>& entries) {
  int64_t total = 0;
  for (const GradientTable::Entry& e : entries) total += e.size;
  return total;
}

// The block in which the gradient lies, and the byte there at which it begins.
uint32_t block_of(const Tensor& gradient) {
  return Device::where(*gradient.impl().storage).block;
}
uint64_t begin_of(const Tensor& gradient) {
  const TensorImpl& impl = gradient.impl();
  return Device::where(*impl.storage).offset + static_cast<uint64_t>(impl.offset) * sizeof(float);
}

void check_gradient(const Tensor& parameter) {
  const Tensor& gradient = parameter.impl().grad;
  check<AutogradError>(gradient.dtype() == DType::f32 && gradient.shape() == parameter.shape() &&
                           &gradient.device() == &parameter.device(),
                       "optimizer",
                       "the gradient of '{}' must be f32 {} on the parameter's device, got {}",
                       parameter.impl().name, parameter.shape(), gradient);
  if (!gradient.is_contiguous()) parameter.impl().grad = contiguous(gradient);
}

}  // namespace

GradientTable::GradientTable(std::vector<Entry> entries) : entries_(std::move(entries)) {
  check(!entries_.empty(), "optimizer", "at least one parameter is needed");
  shift_ = static_cast<uint32_t>(
      std::countr_zero(static_cast<uint64_t>(row_elements(total_of(entries_)) / REWIND_FLAT)));
  for (size_t i = 0; i < entries_.size(); ++i) {
    runs_.resize(std::max(runs_.size(), entries_[i].run + 1));
    Run& run = runs_[entries_[i].run];
    if (run.rows == 0) run.first = rows();
    if (entries_[i].slot >= slot_chunks_.size()) slot_chunks_.push_back(rows());
    first_chunks_.push_back(rows());
    rows_.resize(rows_.size() + static_cast<size_t>((entries_[i].size + chunk() - 1) / chunk()));
    run.rows = rows() - run.first;
    run.begins.push_back(static_cast<int32_t>(run.rows));
  }
  first_chunks_.push_back(rows());
  slot_chunks_.push_back(rows());
  const PurposeScope purpose(Purpose::optimizer);
  const auto device = entries_[0].parameter.device().shared_from_this();
  const int64_t count = rows();
  table_ = empty({count, CHUNK_ROW}, DType::i32, device);
  stats_ = empty({3, count}, DType::f32, device);
}

GradientTable GradientTable::of(const FlatParameters& parameters) {
  std::vector<Entry> entries;
  for (size_t r = 0; r < parameters.runs().size(); ++r) {
    const FlatParameters::Run& run = parameters.runs()[r];
    const int64_t first = run.elements.offset, last = first + run.elements.size;
    for (size_t s = run.first_slot; s < run.first_slot + run.slots; ++s) {
      const FlatParameters::Slot& slot = parameters.slots()[s];
      const int64_t begin = std::max(first, slot.offset),
                    end = std::min(last, slot.offset + slot.parameter.numel());
      const int64_t in_part = begin - slot.offset - slot.own.offset;
      if (run.is_elsewhere)
        entries.push_back({slot.parameter, r, begin - first, begin - slot.offset, end - begin, s});
      else
        entries.push_back({slot.part, r, begin - first, in_part, end - begin, s});
    }
  }
  const PlaceScope place(parameters.update_place());
  GradientTable table(std::move(entries));
  table.are_offloaded_ = std::ranges::any_of(parameters.groups(), [](const ParameterGroup& group) {
    return group.offload && group.offload->parameter_bytes > 0;
  });
  return table;
}

// The range of each block with gradients that a dispatch must see.
std::map<uint32_t, MemoryRange> GradientTable::blocks(size_t first, size_t end) const {
  std::map<uint32_t, MemoryRange> blocks;
  const uint64_t moves = table_.device().moves();
  for (size_t i = first; i < end; ++i) {
    const Entry& e = entries_[i];
    const Tensor& gradient = e.parameter.impl().grad;
    if (!gradient.defined() || gradient.numel() == 0) continue;
    const BufferRange own{block_of(gradient), begin_of(gradient), gradient.bytes()};
    const MemoryRange found{.range = own, .moves = moves};
    BufferRange& all = blocks.try_emplace(own.block, found).first->second.range;
    const uint64_t last = std::max(all.offset + all.size, own.offset + own.size);
    all.offset = std::min(all.offset, own.offset);
    all.size = last - all.offset;
  }
  const uint64_t alignment = entries_[0].parameter.device().info().alignment;
  for (auto& [block, memory] : blocks) {
    const uint64_t below = memory.range.offset % alignment;
    memory.range.offset -= below;
    memory.range.size += below;
    memory.unread = memory.range.size;
  }
  return blocks;
}

bool GradientTable::has_all() const {
  return std::ranges::all_of(
      entries_, [](const Entry& e) { return e.size == 0 || e.parameter.impl().grad.defined(); });
}

bool GradientTable::locate() {
  parts_.clear();
  is_whole_ = true;
  return locate(0, entries_.size());
}

bool GradientTable::locate(size_t run) {
  is_whole_ = false;
  std::erase_if(parts_, [&](const Part& part) { return part.run == run; });
  const auto [first, end] = std::ranges::equal_range(entries_, run, {}, &Entry::run);
  for (const Entry& entry : std::ranges::subrange(first, end)) {
    if (HostWorkScope::is_open()) break;
    const Tensor& gradient = entry.parameter.impl().grad;
    if (!gradient || !gradient.impl().storage->keeper()) continue;
    Storage* const storage = gradient.impl().storage.get();
    storage->keeper()->need({&storage, 1});
  }
  return locate(static_cast<size_t>(first - entries_.begin()),
                static_cast<size_t>(end - entries_.begin()));
}

bool GradientTable::locate(size_t first, size_t end) {
  for (size_t i = first; i < end; ++i)
    if (entries_[i].parameter.impl().grad.defined()) check_gradient(entries_[i].parameter);
  const auto held = table_.device().hold();
  const std::map<uint32_t, MemoryRange> blocks = this->blocks(first, end);
  if (blocks.empty()) return false;
  // Returns the block of an entry's gradient; any will do where there is none.
  const auto block = [&](size_t i) {
    const Tensor& gradient = entries_[i].parameter.impl().grad;
    return gradient.defined() ? block_of(gradient) : blocks.begin()->first;
  };
  std::vector<size_t> order(end - first);
  std::iota(order.begin(), order.end(), first);
  std::ranges::stable_sort(order, {},
                           [&](size_t i) { return std::pair(entries_[i].run, block(i)); });
  uint32_t row = first_chunks_[first];
  for (const size_t i : order) {
    const uint32_t count = first_chunks_[i + 1] - first_chunks_[i], number = block(i);
    if (count == 0) continue;
    const MemoryRange& memory = blocks.at(number);
    if (parts_.empty() || parts_.back().run != entries_[i].run ||
        parts_.back().gradients.range.block != number)
      parts_.push_back({entries_[i].run, memory, row, 0});
    parts_.back().rows += count;
    if (entries_[i].parameter.impl().grad.defined())
      parts_.back().gradients.unread -= sizeof(float) * static_cast<uint64_t>(entries_[i].size);
    write_rows(i, row, memory.range);
    row += count;
  }
  upload(first_chunks_[first], first_chunks_[end]);
  return true;
}

// Writes the rows of an entry from row `first` on; `memory` is that of the gradients.
void GradientTable::write_rows(size_t entry, uint32_t first, const BufferRange& memory) {
  const Entry& e = entries_[entry];
  const Tensor& gradient = e.parameter.impl().grad;
  int64_t grad = e.begin;
  if (gradient.defined())
    grad += static_cast<int64_t>((begin_of(gradient) - memory.offset) / sizeof(float));
  for (uint32_t number = first_chunks_[entry]; number < first_chunks_[entry + 1]; ++number) {
    const int64_t at = (number - first_chunks_[entry]) * chunk(),
                  size = gradient.defined() ? std::min(chunk(), e.size - at) : 0;
    rows_[first++] = {static_cast<int32_t>(e.offset + at), static_cast<int32_t>(grad + at),
                      static_cast<int32_t>(size), static_cast<int32_t>(number)};
  }
}

// Writes rows [first, end) if they have changed, or all rows if there are none yet.
void GradientTable::upload(uint32_t first, uint32_t end) {
  if (uploaded_.empty()) first = 0, end = rows();
  const auto begin = rows_.begin() + first;
  const bool is_same =
      !uploaded_.empty() && std::equal(begin, rows_.begin() + end, uploaded_.begin() + first);
  if (is_same) return;
  const int64_t count = end - first;
  const auto* words = reinterpret_cast<const int32_t*>(rows_.data() + first);
  make_view(table_, {count, CHUNK_ROW}, {CHUNK_ROW, 1}, int64_t{first} * CHUNK_ROW)
      .copy_from(std::span(words, static_cast<size_t>(count) * CHUNK_ROW));
  uploaded_.resize(rows_.size());
  std::copy(begin, rows_.begin() + end, uploaded_.begin() + first);
}

// Takes the device's lock. It looks again for gradients of the run, or of all runs, that have moved
// since they were located.
Device::Hold GradientTable::hold(std::optional<size_t> run) {
  const Device& device = table_.device();
  auto held = device.hold();
  const bool has_moved = std::ranges::any_of(parts_, [&](const Part& part) {
    return (!run || part.run == *run) && part.gradients.moves != device.moves();
  });
  if (has_moved && is_whole_)
    locate();
  else if (has_moved)
    locate(run.value());
  return held;
}

// The memory that one takes, and another one that comes ahead, may move gradients.
void GradientTable::bring_parameters(size_t run) const {
  const auto [first, end] = std::ranges::equal_range(entries_, run, {}, &Entry::run);
  for (const Entry& entry : std::ranges::subrange(first, end)) {
    if (!entry.parameter) continue;
    Storage* const storage = entry.parameter.impl().storage.get();
    if (storage->keeper()) storage->keeper()->need({&storage, 1});
  }
}

GradientTable::Parts GradientTable::parts(size_t run) {
  if (are_offloaded_ && !HostWorkScope::is_open()) bring_parameters(run);
  auto held = hold(run);
  std::vector<Part> parts;
  for (const Part& part : parts_)
    if (part.run == run) parts.push_back(part);
  return {std::move(held), std::move(parts)};
}

Tensor GradientTable::stats() {
  const auto held = hold(std::nullopt);
  for (size_t i = 0; i < parts_.size();) {
    const Part& first = parts_[i];
    MemoryRange gradients = first.gradients;
    uint32_t rows = first.rows;
    // Parts of several runs in one block.
    for (++i; i < parts_.size() && parts_[i].gradients.range.block == gradients.range.block; ++i) {
      rows += parts_[i].rows;
      gradients.unread -= gradients.range.size - parts_[i].gradients.unread;
    }
    launch_stats(gradients, first.first, rows);
  }
  return stats_;
}

Tensor GradientTable::stats(size_t run) {
  const auto held = hold(run);
  for (const Part& part : parts_)
    if (part.run == run) launch_stats(part.gradients, part.first, part.rows);
  return make_view(stats_, {runs_[run].rows}, {1}, int64_t{rows()} + runs_[run].first);
}

void GradientTable::clear_stats() {
  fill_(stats_, 0);
}

void GradientTable::set_stats(const std::vector<bool>& runs) {
  std::vector<float> stats(size_t{3} * rows());
  for (size_t i = 0; i < runs.size(); ++i)
    if (runs[i]) std::fill_n(stats.begin() + 2 * rows() + runs_[i].first, runs_[i].rows, 1.0f);
  stats_.copy_from(std::span<const float>(stats));
}

void GradientTable::launch_stats(const MemoryRange& gradients, uint32_t first,
                                 uint32_t rows) const {
  launch(
      "grad_stats", {in(gradients), in(table_), out(stats_)},
      kernels::GradStatsParams{.offset = {}, .first = first, .rows = rows, .chunks = this->rows()},
      {.threads = {rows, 1, 1}});
}

}  // namespace rw
