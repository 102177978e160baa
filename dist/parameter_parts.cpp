#include "dist/parameter_parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/autograd/tape.h"
#include "core/base/context.h"
#include "core/base/error.h"
#include "core/base/thread_state.h"

namespace rw {

// The thread shares it.
struct ParameterParts::Message {
  std::vector<std::byte> bytes;
  uint64_t job = 0;
};

ParameterParts::ParameterParts(Communicator& ranks, MessageThread& thread,
                               const FlatParameters& parameters, const StreamOptions& options)
    : ranks_(ranks), thread_(thread) {
  std::vector<std::shared_ptr<Storage>> storages;
  for (size_t i = 0; i < parameters.slabs().size(); ++i) {
    Part part = part_of(parameters, i);
    if (part.values.numel() == 0) continue;
    storages.push_back(part.values.impl().storage);
    parts_.push_back(std::move(part));
  }
  stream_ = std::make_unique<Stream>(std::move(storages), *this, options);
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
}

bool ParameterParts::begin_use(std::span<Storage* const> storages) {
  if (context().phase == Phase::update) {
    for (const Storage* storage : storages)
      check<RankError>(!storage->is_swapped_out(), "data_parallel",
                       "averages and monitors must not read parameters that ranks keep in parts, "
                       "got {} {}",
                       name(storage->dtype()), storage->shape());
    return false;
  }
  check<RankError>(!Tape::current()->segments().is_evicting(), "data_parallel",
                   "ranks that keep parameters in parts must replay alike, got values that are "
                   "dropped according to each rank's memory: give the model segments or a plan");
  return true;
}

// Excludes forward under NoGrad, and the first op on the tape: nothing is known of what follows,
// and an evaluation may use the ranks right after it.
bool ParameterParts::is_in_pass() const {
  const Tape& tape = *Tape::current();
  return context().phase != Phase::forward || tape.begin() < tape.end();
}

void ParameterParts::expect(size_t i) {
  std::shared_ptr<Message>& message = coming_[i];
  if (!message) message = send(parts_[i]);
}

void ParameterParts::fill(size_t i, Storage& target) {
  const std::shared_ptr<Message> message = coming_.extract(i).mapped();
  waited_ += thread_.wait(message->job);
  if (!is_pinned(i)) target.device().restore(target, message->bytes.data());
}

std::shared_ptr<ParameterParts::Message> ParameterParts::send(Part& part) {
  copy_own();
  auto message = std::make_shared<Message>();
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

// Values that were written to it go to the own elements.
void ParameterParts::before_leaving(size_t i) {
  Part& part = parts_[i];
  const Storage& storage = *part.values.impl().storage;
  if (std::exchange(part.version, storage.version()) != storage.version() && part.own)
    copy_dense(FlatParameters::view(part.values, {part.own_begin, part.own.numel()}), part.own);
}

// They may have been sent for nothing.
void ParameterParts::forget_messages() {
  coming_.clear();
  thread_.wait_for_all();
}

void ParameterParts::gather() {
  forget_messages();
  stream_->gather();
}

void ParameterParts::release() {
  stream_->release();
  has_copies_ = false;
}

void ParameterParts::end_window() {
  forget_messages();
  stream_->end_window();
  has_copies_ = false;
}

void ParameterParts::add_to(Traffic& traffic) const {
  traffic.parameter_bytes += bytes_;
  traffic.parameter_seconds += waited_;
}

}  // namespace rw
