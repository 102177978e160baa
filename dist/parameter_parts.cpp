#include "dist/parameter_parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/autograd/tape.h"
#include "core/base/context.h"
#include "core/base/error.h"
#include "core/base/thread_state.h"

namespace rw {

namespace {

// Excludes forward under NoGrad, and the first op on the tape: nothing is known of what follows,
// and an evaluation may use the ranks right after it.
bool is_in_pass() {
  const Tape& tape = *Tape::current();
  return context().phase != Phase::forward || tape.begin() < tape.end();
}

}  // namespace

ParameterParts::ParameterParts(Communicator& ranks, MessageThread& thread,
                               const FlatParameters& parameters,
                               const ParameterPartsOptions& options)
    : ranks_(ranks), thread_(thread), options_(options) {
  for (size_t i = 0; i < parameters.slabs().size(); ++i) {
    Part part = part_of(parameters, i);
    if (part.values.numel() == 0) continue;
    Storage& storage = *part.values.impl().storage;
    part_of_[&storage] = parts_.size();
    storage.set_keeper(this);
    swap_out(part);
    parts_.push_back(std::move(part));
  }
  parameters.device().trim();
}

ParameterParts::Part ParameterParts::part_of(const FlatParameters& parameters, size_t index) const {
  const FlatParameters::Slab& slab = parameters.slabs()[index];
  Part part{.values = slab.held(), .shares = std::vector<size_t>(size_t(ranks_.size()))};
  if (!slab.whole) {
    part.shares[static_cast<size_t>(slab.owner)] = part.values.bytes();
    part.is_kept = slab.owner == ranks_.rank();
    if (part.is_kept) part.own = part.values;
    return part;
  }
  const auto& slots = parameters.slots();
  const auto slot = static_cast<size_t>(
      std::ranges::find(slots, index, &FlatParameters::Slot::slab) - slots.begin());
  for (int rank = 0; rank < ranks_.size(); ++rank)
    part.shares[static_cast<size_t>(rank)] =
        static_cast<size_t>(parameters.ownership().part(slot, rank).size) *
        size_of(part.values.dtype());
  part.own = slab.values();
  part.own_begin = slab.own.offset;
  part.version = slab.whole_version;
  return part;
}

// A message on its way is on its way on all ranks, so it is waited for.
ParameterParts::~ParameterParts() {
  try {
    thread_.wait_for_all();
  } catch (...) {  // told to whoever waited for it first
  }
  for (const Part& part : parts_) part.values.impl().storage->set_keeper(nullptr);
}

void ParameterParts::need(std::span<Storage* const> storages) {
  if (is_gathered_) return;
  if (context().phase == Phase::update) {
    for (const Storage* storage : storages)
      check<RankError>(!storage->is_swapped_out(), "data_parallel",
                       "averages and monitors must not read parameters that ranks keep in parts, "
                       "got {} {}",
                       name(storage->dtype()), storage->shape());
    return;
  }
  check<RankError>(!Tape::current()->segments().is_evicting(), "data_parallel",
                   "ranks that keep parameters in parts must replay alike, got values that are "
                   "dropped according to each rank's memory: give the model segments or a plan");
  ++clock_;
  std::vector<size_t> missing;
  for (const Storage* storage : storages) {
    const auto found = part_of_.find(storage);
    if (found == part_of_.end()) continue;
    Part& part = parts_[found->second];
    if (!part.is_here && part.used != clock_) missing.push_back(found->second);
    part.used = clock_;
  }
  for (const size_t part : missing) {
    make_room(parts_[part].values.bytes());
    bring(*take_expected(part));
  }
}

// The parts that the current kernel reads stay.
void ParameterParts::make_room(uint64_t bytes) {
  while (here_ + bytes > options_.most_bytes) {
    Part* oldest = nullptr;
    for (Part& part : parts_)
      if (part.is_here && part.used < clock_ && (!oldest || part.used < oldest->used))
        oldest = &part;
    if (!oldest) return;
    swap_out(*oldest);
  }
}

void ParameterParts::bring(const Message& message) {
  Part& part = parts_[message.part];
  waited_ += thread_.wait(message.job);
  if (!part.is_kept) {
    const PurposeScope purpose(Purpose::workspace);
    const PlaceScope place(MemoryPlace::device);
    Device& device = part.values.device();
    device.swap_in(*part.values.impl().storage);
    device.restore(*part.values.impl().storage, message.bytes.data());
  }
  part.is_here = true;
  here_ += part.values.bytes();
}

// Returns the part's message and sends for the part that is expected next. Once a window uses
// another part than the window before, nothing is expected in the rest of it.
std::shared_ptr<ParameterParts::Message> ParameterParts::take_expected(size_t part) {
  std::shared_ptr<Message> message = std::exchange(ahead_, nullptr);
  if (!message || message->part != part) message = send(part);
  if (!is_in_pass()) return message;
  wanted_.push_back(part);
  const bool is_expected = next_ < expected_.size() && expected_[next_] == part;
  next_ = is_expected ? next_ + 1 : expected_.size();
  if (options_.ahead && next_ < expected_.size()) ahead_ = send(expected_[next_]);
  return message;
}

std::shared_ptr<ParameterParts::Message> ParameterParts::send(size_t index) {
  Part& part = parts_[index];
  copy_own();
  auto message = std::make_shared<Message>();
  message->part = index;
  if (part.values.device().backend().is_dry()) return message;  // there are no values
  message->bytes.resize(part.values.bytes());
  message->job = thread_.add([this, message, &part] {
    std::span<std::byte> rest(message->bytes);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const std::span<std::byte> share = rest.first(part.shares[static_cast<size_t>(rank)]);
      rest = rest.subspan(share.size());
      if (share.empty()) continue;
      if (rank == ranks_.rank()) {
        part.sent.wait();
        std::memcpy(share.data(), part.sent.bytes, share.size());
      }
      ranks_.broadcast(share, rank);
    }
  });
  bytes_ += message->bytes.size() * static_cast<uint64_t>(ranks_.size() - 1);
  return message;
}

// Queues all copies behind the update that made the values, so that nobody waits for later work.
void ParameterParts::copy_own() {
  if (std::exchange(has_copies_, true)) return;
  for (Part& part : parts_) {
    if (!part.own) continue;
    Tensor& copy = part.sent.tensor;
    if (!copy) copy = empty_on_host(part.own.numel(), part.own.dtype(), part.own.device());
    copy.device().copy(*part.own.impl().storage, 0, *copy.impl().storage, 0, copy.bytes());
  }
  for (Part& part : parts_)
    if (part.sent.tensor) part.sent.mark();
}

void ParameterParts::swap_out(Part& part) {
  if (std::exchange(part.is_here, false)) here_ -= part.values.bytes();
  Storage& storage = *part.values.impl().storage;
  if (part.is_kept || storage.is_swapped_out()) return;
  // Values that were written to it go to the own elements.
  if (std::exchange(part.version, storage.version()) != storage.version() && part.own)
    copy_dense(FlatParameters::view(part.values, {part.own_begin, part.own.numel()}), part.own);
  part.values.device().swap_out(storage);
}

void ParameterParts::gather() {
  ahead_ = nullptr;
  thread_.wait_for_all();
  for (size_t part = 0; part < parts_.size(); ++part)
    if (!parts_[part].is_here) bring(*send(part));
  is_gathered_ = true;
}

void ParameterParts::release() {
  is_gathered_ = false;
  drop();
  has_copies_ = false;
}

void ParameterParts::drop() {
  for (Part& part : parts_) swap_out(part);
}

void ParameterParts::end_window() {
  ahead_ = nullptr;
  thread_.wait_for_all();  // it may have been sent for nothing
  drop();
  has_copies_ = false;
  expected_ = std::exchange(wanted_, {});
  next_ = 0;
}

void ParameterParts::add_to(Traffic& traffic) const {
  traffic.parameter_bytes += bytes_;
  traffic.parameter_seconds += waited_;
}

}  // namespace rw
