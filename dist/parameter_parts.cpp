#include "rewind/dist/parameter_parts.h"

#include <cstring>
#include <utility>

#include "rewind/core/autograd/tape.h"
#include "rewind/core/base/context.h"
#include "rewind/core/base/error.h"
#include "rewind/core/base/thread_state.h"

namespace rw {

namespace {

// Forward under NoGrad, or of an op that is the first on the tape: nobody knows what follows, and
// who evaluates may use the ranks right after it.
bool is_in_pass() {
  const Tape& tape = *Tape::current();
  return context().phase != Phase::forward || tape.begin() < tape.end();
}

}  // namespace

ParameterParts::ParameterParts(Communicator& ranks, MessageThread& thread,
                               const FlatParameters& parameters,
                               const ParameterPartsOptions& options)
    : ranks_(ranks), thread_(thread), options_(options) {
  for (const FlatParameters::Slab& slab : parameters.slabs()) {
    if (slab.values().numel() == 0) continue;
    Storage& storage = *slab.values().impl().storage;
    part_of_[&storage] = parts_.size();
    parts_.push_back({.values = slab.values(), .owner = slab.owner});
    storage.set_keeper(this);
    send_away(parts_.back());
  }
  parameters.device().trim();
}

// What is on its way is on its way on all ranks.
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
      check<RankError>(!storage->is_away(), "data_parallel",
                       "what follows updates must not read parameters that ranks keep in parts, "
                       "got {} {}",
                       name(storage->dtype()), storage->shape());
    return;
  }
  check<RankError>(!Tape::current()->segments().is_evicting(), "data_parallel",
                   "ranks that keep parameters in parts must replay alike, got values that are "
                   "dropped by what memory each rank has: give the model segments or a plan");
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

// What the kernel reads that wants it stays.
void ParameterParts::make_room(uint64_t bytes) {
  while (here_ + bytes > options_.most_bytes) {
    Part* oldest = nullptr;
    for (Part& part : parts_)
      if (part.is_here && part.used < clock_ && (!oldest || part.used < oldest->used))
        oldest = &part;
    if (!oldest) return;
    send_away(*oldest);
  }
}

void ParameterParts::bring(const Message& message) {
  Part& part = parts_[message.part];
  waited_ += thread_.wait(message.job);
  if (part.owner != ranks_.rank()) {
    const PurposeScope purpose(Purpose::workspace);
    const PlaceScope place(MemoryPlace::device);
    Device& device = part.values.device();
    device.bring_back(*part.values.impl().storage);
    device.restore(*part.values.impl().storage, message.bytes.data());
  }
  part.is_here = true;
  here_ += part.values.bytes();
}

// Its message, and that of the part which is expected next is on its way. Where a window wants
// another part than the one before, nothing is expected in the rest of it.
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
  const bool is_own = part.owner == ranks_.rank();
  copy_own();
  auto message = std::make_shared<Message>();
  message->part = index;
  if (part.values.device().backend().is_dry()) return message;  // there are no values
  message->bytes.resize(part.values.bytes());
  message->job = thread_.add([this, message, is_own, &part] {
    if (is_own) {
      part.sent.wait();
      std::memcpy(message->bytes.data(), part.sent.bytes, message->bytes.size());
    }
    ranks_.broadcast(message->bytes, part.owner);
  });
  bytes_ += message->bytes.size() * static_cast<uint64_t>(ranks_.size() - 1);
  return message;
}

// All of them behind the update that made them: nobody waits for what is computed meanwhile.
void ParameterParts::copy_own() {
  if (std::exchange(has_copies_, true)) return;
  for (Part& part : parts_) {
    if (part.owner != ranks_.rank()) continue;
    Tensor& copy = part.sent.tensor;
    if (!copy) copy = empty_on_host(part.values.numel(), part.values.dtype(), part.values.device());
    copy.device().copy(*part.values.impl().storage, 0, *copy.impl().storage, 0, copy.bytes());
  }
  for (Part& part : parts_)
    if (part.sent.tensor) part.sent.mark();
}

void ParameterParts::send_away(Part& part) {
  if (std::exchange(part.is_here, false)) here_ -= part.values.bytes();
  if (part.owner != ranks_.rank()) part.values.device().send_away(*part.values.impl().storage);
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
  for (Part& part : parts_) send_away(part);
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
