// Parameters that ranks keep in parts.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "../core/memory/storage.h"
#include "../optim/base/parameters.h"
#include "host_copy.h"
#include "traffic.h"
#include "world/communicator.h"
#include "world/message_thread.h"

namespace rw {

// How parts are gathered.
struct ParameterPartsOptions {
  uint64_t most_bytes = 0;  // that have come at a time, beyond which only what one kernel reads
  bool ahead = true;        // the part that is wanted next is sent while the device works
};

// Each slab of the parameters has an owner, which keeps it (shard_parameters), or has one parameter
// of which several ranks keep a part each. Otherwise its memory is away; if a kernel is about to
// read it, the owners send it (ZeRO 3, Rajbhandari et al. 2020): in forward, in replay, and in
// backward, where a gradient reads a weight. A slab that has arrived stays until others want the
// room; the slab that was not used for longest goes first.
//
// No rank asks another for a slab: all ranks run the same passes, so they want the same slabs at
// the same time, and all know which slabs are there. For this purpose, owners count their own slabs
// like those that arrived. The next window is expected to want the slabs of the last one in the
// same order, so the message of the next slab is under way in host memory before it is asked for.
class ParameterParts : public StorageKeeper {
 public:
  // From now on, what other ranks own is away. `ranks` and `thread`, which sends the messages, must
  // outlive it.
  ParameterParts(Communicator& ranks, MessageThread& thread, const FlatParameters& parameters,
                 const ParameterPartsOptions& options);
  ~ParameterParts() override;  // memory that is away stays away, and nobody brings it back
  ParameterParts(const ParameterParts&) = delete;
  ParameterParts& operator=(const ParameterParts&) = delete;

  void need(std::span<Storage* const> storages) override;
  // Gathers all of them until release(), between passes; on all ranks together. They may be written
  // to.
  void gather();
  void release();
  bool is_gathered() const { return is_gathered_; }

  void drop();        // drops the slabs that arrived, at the end of a pass
  void end_window();  // after an update: the owners have other values

  void add_to(Traffic& traffic) const;  // adds the bytes sent so far

 private:
  struct Part {
    Tensor values;
    std::vector<size_t> shares;  // bytes of it that each rank keeps, one after the other
    Tensor own;                  // this rank's; undefined: none
    int64_t own_begin = 0;       // its first element
    bool is_kept = false;        // all of it is this rank's, and never away
    uint32_t version = 0;        // of its storage when the own elements were the same
    bool is_here = false;        // on all ranks alike
    uint64_t used = 0;           // when
    HostCopy sent;               // of the own ones, for messages
  };
  // A part that is on its way, or has arrived; shared with the thread.
  struct Message {
    size_t part = 0;
    std::vector<std::byte> bytes;
    uint64_t job = 0;
  };
  Part part_of(const FlatParameters& parameters, size_t slab) const;
  void bring(const Message& message);
  std::shared_ptr<Message> send(size_t part);
  void copy_own();
  std::shared_ptr<Message> take_expected(size_t part);
  void swap_out(Part& part);
  void make_room(uint64_t bytes);

  Communicator& ranks_;
  MessageThread& thread_;
  const ParameterPartsOptions options_;
  std::vector<Part> parts_;
  std::unordered_map<const Storage*, size_t> part_of_;
  uint64_t clock_ = 0, here_ = 0;
  bool is_gathered_ = false, has_copies_ = false;  // of the own parts, on the host
  std::vector<size_t> wanted_, expected_;          // parts, of this window and of the one before
  size_t next_ = 0;                                // of those expected
  std::shared_ptr<Message> ahead_;
  uint64_t bytes_ = 0;
  double waited_ = 0;
};

}  // namespace rw
