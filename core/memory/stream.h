// Storages whose contents come when kernels need them and go when others want the room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device.h"

namespace rw {

// Where the contents of a stream's storages are: with other ranks, in host memory, in a file.
// Storages have the stream's numbers.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Called before a kernel uses these storages. Throws if they may not be used now. Returns whether
  // those that are away are to come.
  virtual bool begin_use(std::span<Storage* const>) { return true; }
  // Whether the memory of storage i never goes; it counts as that of the others does.
  virtual bool is_pinned(size_t) const { return false; }
  // Whether this use will come again in the next window.
  virtual bool is_in_pass() const { return true; }
  // Storage i will be filled, and so will others first: begins to fetch it, if nobody has yet.
  virtual void expect(size_t) {}
  // Whether filling is only queued, so that one may be filled ahead, while the device works.
  virtual bool fills_ahead() const { return false; }
  // Puts its contents into its memory, or queues that.
  virtual void fill(size_t i, Storage& target) = 0;
  // Its memory is about to go, with what was written to it.
  virtual void before_leaving(size_t) {}
};

// The bytes of weights that a stream has on the device where nothing else is said, and those of the
// least tensor that it takes.
inline constexpr uint64_t usual_streamed_bytes = uint64_t{512} << 20;
inline constexpr uint64_t least_streamed_bytes = uint64_t{64} << 10;

// How the contents of a stream come.
struct StreamOptions {
  uint64_t most_bytes = 0;  // that are there at a time, beyond which only what one kernel reads
  bool ahead = true;        // the next one is fetched while the device works
};

// Keeps storages away, and brings them when a kernel is about to read them: in forward, in replay,
// and in backward. One that has come stays until others want the room; the one that was not used
// for longest goes first. A window, such as a step, is expected to want them in the order of the
// window before; so the next one is fetched before it is asked for.
class Stream : public StorageKeeper {
 public:
  // From now on, all these storages are away, except for those that are pinned. `source` must
  // outlive it.
  Stream(std::vector<std::shared_ptr<Storage>> storages, StreamSource& source,
         const StreamOptions& options);
  ~Stream() override;  // memory that is away stays away, and nobody brings it back
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void need(std::span<Storage* const> storages) override;

  // Brings all of them until release(), between windows. They may be written to.
  void gather();
  void release();
  bool is_gathered() const { return is_gathered_; }

  void send_away(Storage& storage);  // one of its own; another one it leaves alone
  void drop();                       // sends all of them away, at the end of a pass
  void end_window();                 // the same, and the next one is expected to be like this one

 private:
  struct Slot;
  void bring(size_t i);
  void note_use(size_t i);
  void fill_next();
  void leave(size_t i);
  void make_room(uint64_t bytes);

  StreamSource& source_;
  const StreamOptions options_;
  std::vector<Slot> slots_;
  std::unordered_map<const Storage*, size_t> number_of_;
  uint64_t clock_ = 0, here_ = 0;
  bool is_gathered_ = false;
  std::vector<size_t> wanted_, expected_;  // storages, of this window and of the one before
  size_t next_ = 0;                        // of those expected
};

}  // namespace rw
