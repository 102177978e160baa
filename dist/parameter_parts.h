// Parameters that ranks keep in parts.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "../core/memory/stream.h"
#include "../optim/base/parameters.h"
#include "host_copy.h"
#include "traffic.h"
#include "world/communicator.h"
#include "world/message_thread.h"

namespace rw {

// Each slab of the parameters has an owner, which keeps it (shard_parameters), or has one parameter
// of which several ranks keep a part each. Otherwise its memory is away; if a kernel is about to
// read it, the owners send it (ZeRO 3, Rajbhandari et al. 2020).
//
// No rank asks another for a slab: all ranks run the same passes, so they want the same slabs at
// the same time, and all know which slabs are there. For this purpose, owners count their own slabs
// like those that arrived. The message of the slab that the last window wanted next is under way in
// host memory before it is asked for.
class ParameterParts : public StreamSource {
 public:
  // From now on, what other ranks own is away. `ranks` and `thread`, which sends the messages, must
  // outlive it.
  ParameterParts(Communicator& ranks, MessageThread& thread, const FlatParameters& parameters,
                 const StreamOptions& options);
  ~ParameterParts() override;
  ParameterParts(const ParameterParts&) = delete;
  ParameterParts& operator=(const ParameterParts&) = delete;

  bool begin_use(std::span<Storage* const> storages) override;
  bool is_pinned(size_t i) const override { return parts_[i].is_kept; }
  bool is_in_pass() const override;
  void expect(size_t i) override;
  void fill(size_t i, Storage& target) override;
  void before_leaving(size_t i) override;

  // As those of the stream, on all ranks together; end_window() comes after an update, when the
  // owners have other values.
  void gather();
  void release();
  bool is_gathered() const { return stream_->is_gathered(); }
  void drop() { stream_->drop(); }
  void end_window();

  void add_to(Traffic& traffic) const;  // adds the bytes sent so far

 private:
  struct Part {
    Tensor values;
    std::vector<size_t> shares;  // bytes of it that each rank keeps, one after the other
    Tensor own;                  // this rank's; undefined: none
    int64_t own_begin = 0;       // its first element
    bool is_kept = false;        // all of it is this rank's, and never away
    uint32_t version = 0;        // of its storage when the own elements were the same
    HostCopy sent;               // of the own ones, for messages
  };
  struct Message;  // a part that is on its way, or has arrived
  Part part_of(const FlatParameters& parameters, size_t slab) const;
  std::shared_ptr<Message> send(Part& part);
  void copy_own();
  void forget_messages();

  Communicator& ranks_;
  MessageThread& thread_;
  std::vector<Part> parts_;
  std::map<size_t, std::shared_ptr<Message>> coming_;
  bool has_copies_ = false;  // of the own parts, on the host
  uint64_t bytes_ = 0;
  double waited_ = 0;
  std::unique_ptr<Stream> stream_;
};

}  // namespace rw
