#include "tests/stand_ins/i915.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string_view>
#include <vector>

namespace rw::stand_in {

namespace {

template <typename T>
T& as(void* arg) {
  return *static_cast<T*>(arg);
}
template <typename T>
std::span<T> array(uint64_t address, uint64_t count) {
  return {reinterpret_cast<T*>(address), count};
}

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// One slice has all cores, as Linux tells it of Xe HP and later.
Bytes topology(const Gpu& gpu) {
  const uint32_t cores = gpu.cores, mask = (cores + 7) / 8, engines = (gpu.engines + 7) / 8;
  drm_i915_query_topology_info head{};
  head.max_slices = 1;
  head.max_subslices = static_cast<uint16_t>(cores);
  head.max_eus_per_subslice = static_cast<uint16_t>(gpu.engines);
  head.subslice_offset = 1;
  head.subslice_stride = static_cast<uint16_t>(mask);
  head.eu_offset = static_cast<uint16_t>(1 + mask);
  head.eu_stride = static_cast<uint16_t>(engines);
  Bytes all;
  append(all, head);
  append(all, uint8_t{1});
  for (uint32_t core = 0; core < cores; core += 8)
    append(all, static_cast<uint8_t>((1u << std::min(8u, cores - core)) - 1));
  all.resize(all.size() + engines * cores, std::byte{0xff});
  return all;
}

Bytes engines() {
  drm_i915_query_engine_info head{};
  head.num_engines = 2;
  drm_i915_engine_info render{}, copy{};
  render.engine.engine_class = I915_ENGINE_CLASS_RENDER;
  copy.engine.engine_class = I915_ENGINE_CLASS_COPY;
  Bytes all;
  append(all, head);
  append(all, render);
  append(all, copy);
  return all;
}

Bytes memory_regions(const Gpu& gpu) {
  drm_i915_query_memory_regions head{};
  head.num_regions = gpu.local_bytes ? 2 : 1;
  Bytes all;
  append(all, head);
  const auto add = [&](uint16_t kind, uint64_t bytes) {
    drm_i915_memory_region_info region{};
    region.region.memory_class = kind;
    region.probed_size = region.unallocated_size = bytes;
    region.probed_cpu_visible_size = region.unallocated_cpu_visible_size = bytes;
    append(all, region);
  };
  add(I915_MEMORY_CLASS_SYSTEM, uint64_t{16} << 30);
  if (gpu.local_bytes) add(I915_MEMORY_CLASS_DEVICE, gpu.local_bytes);
  return all;
}

int parameter(const Gpu& gpu, int32_t name) {
  switch (name) {
    case I915_PARAM_CHIPSET_ID:
      return static_cast<int>(gpu.pci_id);
    case I915_PARAM_REVISION:
      return 8;
    case I915_PARAM_CS_TIMESTAMP_FREQUENCY:
      return 19'200'000;
    case I915_PARAM_MMAP_GTT_VERSION:
      return 4;
    case I915_PARAM_HAS_ALIASING_PPGTT:
      return 3;
    default:
      return 1;  // it has what is asked for
  }
}

uint64_t context_parameter(uint64_t name) {
  return name == I915_CONTEXT_PARAM_GTT_SIZE ? uint64_t{1} << 48 : 0;
}

void query(const Gpu& gpu, drm_i915_query_item& item) {
  Bytes found;
  switch (item.query_id) {
    case DRM_I915_QUERY_TOPOLOGY_INFO:
    case DRM_I915_QUERY_GEOMETRY_SUBSLICES:
      found = topology(gpu);
      break;
    case DRM_I915_QUERY_ENGINE_INFO:
      found = engines();
      break;
    case DRM_I915_QUERY_MEMORY_REGIONS:
      found = memory_regions(gpu);
      break;
    default:
      break;
  }
  const auto bytes = static_cast<int32_t>(found.size());
  if (bytes == 0 || (item.length && item.length < bytes)) {
    item.length = -EINVAL;
    return;
  }
  if (item.length) std::ranges::copy(found, reinterpret_cast<std::byte*>(item.data_ptr));
  item.length = bytes;
}

void version(drm_version& v) {
  constexpr std::string_view name = "i915";
  if (v.name && v.name_len >= name.size()) std::ranges::copy(name, v.name);
  v.version_major = 1;
  v.name_len = name.size();
  v.date_len = v.desc_len = 0;
}

}  // namespace

uint32_t I915::create(uint64_t bytes) {
  constexpr uint64_t page = 65536;
  const uint64_t whole = (bytes + page - 1) / page * page;
  buffers_[++last_] = {end_, whole};
  end_ += whole;
  return last_;
}

int I915::close(uint32_t handle) {
  const auto found = buffers_.find(handle);
  if (found == buffers_.end()) return EINVAL;
  const auto [offset, bytes] = found->second;
  fallocate(memory_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  buffers_.erase(found);
  return 0;
}

void I915::execute(const drm_i915_gem_execbuffer2& e) {
  if (!(e.flags & I915_EXEC_USE_EXTENSIONS)) return;
  using Timelines = drm_i915_gem_execbuffer_ext_timeline_fences;
  for (uint64_t next = e.cliprects_ptr; next;) {
    auto& extension = array<i915_user_extension>(next, 1)[0];
    if (extension.name == DRM_I915_GEM_EXECBUFFER_EXT_TIMELINE_FENCES) {
      const auto& all = array<Timelines>(next, 1)[0];
      const auto fences = array<drm_i915_gem_exec_fence>(all.handles_ptr, all.fence_count);
      const auto values = array<uint64_t>(all.values_ptr, all.fence_count);
      for (size_t i = 0; i < fences.size(); ++i)
        if (fences[i].flags & I915_EXEC_FENCE_SIGNAL) points_[fences[i].handle] = values[i];
    }
    next = extension.next_extension;
  }
}

int I915::place(drm_i915_gem_mmap_offset& m) const {
  const auto found = buffers_.find(m.handle);
  if (found == buffers_.end()) return EINVAL;
  m.offset = found->second.offset;
  return 0;
}

void I915::timelines(const drm_syncobj_timeline_array& s, bool signals) {
  const auto handles = array<uint32_t>(s.handles, s.count_handles);
  const auto points = array<uint64_t>(s.points, s.count_handles);
  for (size_t i = 0; i < handles.size(); ++i) {
    uint64_t& point = points_[handles[i]];
    (signals ? point : points[i]) = signals ? points[i] : point;
  }
}

int I915::answer(unsigned long request, void* arg) {
  const std::lock_guard lock(mutex_);
  switch (_IOC_NR(request)) {  // their structs grow from one version of Linux to the next
    case _IOC_NR(DRM_IOCTL_VERSION):
      version(as<drm_version>(arg));
      return 0;
    case _IOC_NR(DRM_IOCTL_GET_CAP):
      as<drm_get_cap>(arg).value = as<drm_get_cap>(arg).capability == DRM_CAP_SYNCOBJ ||
                                   as<drm_get_cap>(arg).capability == DRM_CAP_SYNCOBJ_TIMELINE;
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_CREATE):
      as<drm_syncobj_create>(arg).handle = ++last_;
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_DESTROY):
      points_.erase(as<drm_syncobj_destroy>(arg).handle);
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_QUERY):
      timelines(as<drm_syncobj_timeline_array>(arg), false);
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL):
      timelines(as<drm_syncobj_timeline_array>(arg), true);
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_TRANSFER):
      points_[as<drm_syncobj_transfer>(arg).dst_handle] = as<drm_syncobj_transfer>(arg).dst_point;
      return 0;
    case _IOC_NR(DRM_IOCTL_GEM_CLOSE):
      return close(as<drm_gem_close>(arg).handle);
    case _IOC_NR(DRM_IOCTL_I915_GEM_CREATE):
      as<drm_i915_gem_create>(arg).handle = create(as<drm_i915_gem_create>(arg).size);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_CREATE_EXT):
      as<drm_i915_gem_create_ext>(arg).handle = create(as<drm_i915_gem_create_ext>(arg).size);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_USERPTR):
      as<drm_i915_gem_userptr>(arg).handle = create(as<drm_i915_gem_userptr>(arg).user_size);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_MMAP_OFFSET):
      return place(as<drm_i915_gem_mmap_offset>(arg));
    case _IOC_NR(DRM_IOCTL_I915_GEM_GET_APERTURE):
      as<drm_i915_gem_get_aperture>(arg).aper_size = uint64_t{1} << 48;
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_CONTEXT_CREATE):
      as<drm_i915_gem_context_create>(arg).ctx_id = 1;
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_CONTEXT_GETPARAM):
      as<drm_i915_gem_context_param>(arg).value =
          context_parameter(as<drm_i915_gem_context_param>(arg).param);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GETPARAM):
      *as<drm_i915_getparam>(arg).value = parameter(gpu_, as<drm_i915_getparam>(arg).param);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_QUERY):
      for (auto& item : array<drm_i915_query_item>(as<drm_i915_query>(arg).items_ptr,
                                                   as<drm_i915_query>(arg).num_items))
        query(gpu_, item);
      return 0;
    case _IOC_NR(DRM_IOCTL_I915_GEM_EXECBUFFER2):
      execute(as<drm_i915_gem_execbuffer2>(arg));
      return 0;
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_WAIT):
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT):
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_RESET):
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_SIGNAL):
    case _IOC_NR(DRM_IOCTL_I915_GEM_GET_TILING):
    case _IOC_NR(DRM_IOCTL_I915_GEM_SET_CACHING):
    case _IOC_NR(DRM_IOCTL_I915_GEM_WAIT):
    case _IOC_NR(DRM_IOCTL_I915_GEM_CONTEXT_DESTROY):
    case _IOC_NR(DRM_IOCTL_I915_GEM_CONTEXT_SETPARAM):
    case _IOC_NR(DRM_IOCTL_I915_GET_RESET_STATS):
      return 0;
    default:
      return EINVAL;
  }
}

}  // namespace rw::stand_in
