// The ioctls of Linux's i915 driver (i915_drm.h), as far as Mesa's driver needs them.
#pragma once

#include <cstdint>
#include <i915_drm.h>
#include <map>
#include <mutex>

namespace rw::stand_in {

struct Gpu {
  const char* name;
  uint32_t pci_id;
  uint32_t cores, engines;  // Xe cores ("subslices"), and vector engines of a core
  uint64_t local_bytes;     // 0: an integrated GPU
};

// Buffers are parts of the file `memory`. What is submitted does nothing, and has then come to its
// end.
class I915 {
 public:
  I915(const Gpu& gpu, int memory) : gpu_(gpu), memory_(memory) {}
  int answer(unsigned long request, void* arg);  // 0 or an errno

 private:
  struct Buffer {
    uint64_t offset, bytes;
  };

  uint32_t create(uint64_t bytes);
  int close(uint32_t handle);
  int place(drm_i915_gem_mmap_offset& m) const;
  void timelines(const drm_syncobj_timeline_array& s, bool signals);
  void execute(const drm_i915_gem_execbuffer2& e);

  const Gpu& gpu_;
  int memory_;
  std::mutex mutex_;
  std::map<uint32_t, Buffer> buffers_;
  std::map<uint32_t, uint64_t> points_;  // of timelines
  uint32_t last_ = 0;                    // handle
  uint64_t end_ = 0;                     // of the buffers
};

}  // namespace rw::stand_in
