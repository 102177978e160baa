// The whole interface between the framework and a device. It never grows with ops: an op is a
// kernel name, its bindings, its parameters and a number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/dtype.h"
#include "buffer_range.h"

namespace rw {

// The way in which a kernel uses a binding: read, write (its previous contents do not matter),
// read_write.
enum class Access : uint8_t { read, write, read_write };

// `dtype` is the type in which the kernel sees the elements; the dtypes of all bindings choose the
// kernel variant. `range.offset` is a multiple of DeviceInfo::alignment, and the range may be read
// (never written) up to the next multiple of 16 bytes.
struct Binding {
  BufferRange range;
  DType dtype = DType::f32;
  Access access = Access::read;  // orders the call after others that touch the same bytes
};

// The part of a call that a backend prepares before it runs.
struct Preparation {
  virtual ~Preparation() = default;
  uint64_t workspace_bytes = 0;  // scratch that run() must be given
};

// One kernel to run: its name, its bindings and its parameters.
struct KernelCall {
  std::string_view kernel;                      // the same name in every backend
  std::span<const Binding> bindings;            // at most 8
  std::span<const std::byte> params;            // a struct of shaders/params.h, at most 124 bytes
  std::array<uint32_t, 3> threads = {1, 1, 1};  // not workgroups: the backend divides
  std::span<const uint32_t> variant = {};       // specialization constants 0, 1, ...
  double flops = 0;                             // for submit pacing and reports
  uint64_t unread = 0;                          // bytes of the bindings that it does not touch
  BufferRange workspace = {};                   // workspace_bytes(call) bytes, contents undefined
  // The result of prepare(call); empty: run() prepares.
  std::optional<const Preparation*> preparation = {};

  // Returns the parameters, which are a P.
  template <class P>
  P params_as() const {
    P p;
    std::memcpy(&p, params.data(), sizeof p);
    return p;
  }
  // Returns specialization constant i, or 0 if the call gives none.
  uint32_t constant(size_t i) const { return i < variant.size() ? variant[i] : 0; }
};

// Returns the bytes that the call reads and writes through a binding, or through all of them.
inline uint64_t bytes_moved(const Binding& binding) {
  return binding.range.size << (binding.access == Access::read_write);
}
inline uint64_t bytes_moved(const KernelCall& call) {
  uint64_t bytes = 0;
  for (const Binding& b : call.bindings) bytes += bytes_moved(b);
  return bytes - call.unread;
}

// A feature, by its name, that a device offers but that is not used because it gave wrong results.
struct RefusedFeature {
  std::string name;
  std::string fault;  // the wrong result
};

// The speed of copies between the memory of a device and that of the host.
struct HostBandwidth {
  // In bytes per second, in each direction. Zeros: both are the same memory, so that a copy there
  // gains nothing.
  double to_host = 0, from_host = 0;
  // The bytes per second that the host's processor reads and writes as it updates parameters.
  double updates = 0;

  // Whether a copy gains anything.
  bool gains() const { return to_host > 0 && from_host > 0; }
  // The seconds that a byte takes to host memory and back; infinite where it gains nothing.
  double seconds_there_and_back() const {
    return gains() ? 1 / to_host + 1 / from_host : std::numeric_limits<double>::infinity();
  }
};

// A device, and its features that are in use.
struct DeviceInfo {
  std::string backend;           // "vulkan", "cpu"
  std::string name;              // as the driver names it
  std::string driver;            // driver name and version
  std::string uuid;              // in hex, empty if there is none
  bool is_cpu = false;           // a CPU device or a software driver
  uint64_t memory_bytes = 0;     // size of the heap used for blocks
  uint64_t max_block_bytes = 0;  // largest block that allocate_block accepts
  uint64_t alignment = 256;      // of every allocation inside a block
  uint32_t subgroup_size = 1;    // threads that run in lockstep
  // Those in use, of the ones that it could do without; least loss first.
  std::vector<std::string> features;
  std::vector<RefusedFeature> refused;  // by the self-check
  std::string tuning = {};  // the choices of `tune`: how many ways to run, and when; empty: none
  HostBandwidth host_bandwidth = {};  // as `tune` measured it, or else assumed

  // Tells whether the feature is in use.
  bool has(std::string_view feature) const {
    return std::find(features.begin(), features.end(), feature) != features.end();
  }
};

// One memory heap of the device, in bytes: its size, its budget (what this process may use) and its
// usage (what it uses, including the driver's own needs). The last two are 0 if the driver does not
// report them.
struct HeapUsage {
  uint64_t size = 0, budget = 0, usage = 0;
  bool device_local =
      false;  // the device's own memory, or shared with the host where there is no other
};

// The time when one shader module, or one kernel if a call is not composed of several, ran on the
// device.
struct KernelTime {
  uint64_t call = 0;  // the run() that it belongs to, counted from time_kernels(true)
  std::string kernel;
  double start_us = 0, end_us = 0;  // on the device's clock, from its first kernel timed
};

// The way in which a kernel runs on this device, for one combination of dtypes.
struct KernelVariant {
  std::string kernel;   // or a part of one that is composed of several
  std::string dtypes;   // of its bindings: "f16 f32 f16"
  std::string variant;  // "16-bit storage, descriptors or addresses"; empty: it cannot run
  std::string lacks;    // the features that it would need
};

// The compiler's result for one pipeline: a kernel for one combination of dtypes, bound and
// specialized in one way. A number that the driver does not report is missing.
struct PipelineStatistics {
  std::string kernel, dtypes;  // as in KernelVariant
  std::string storage;    // of f16: "16-bit storage", "packed" if words are packed first, "words"
  std::string bindings;   // "descriptors" or "addresses"
  std::string constants;  // "OP=3 FLAT=1"
  std::optional<uint64_t> registers;     // of a thread
  std::optional<uint64_t> spills;        // values or bytes that did not fit the registers
  std::optional<uint64_t> shared_bytes;  // of a workgroup
  std::optional<uint64_t> instructions;  // of the whole pipeline
  uint64_t subgroup_size = 0;            // for which it was compiled
  // Everything that the driver reports, by the driver's names.
  std::vector<std::pair<std::string, double>> raw;
  uint64_t found = 0;  // how often the text that was asked for occurs in the machine code
};

// Counts since the backend was opened: kernels dispatched, submits to the queue, barriers between
// dispatches, pipelines compiled.
struct BackendStats {
  uint64_t dispatches = 0, submits = 0, barriers = 0, pipelines = 0;
};

// A device as the framework drives it: blocks of memory, copies, kernels. Calls come one at a time,
// from any thread (Device holds a lock).
class Backend {
 public:
  virtual ~Backend() = default;
  // The device, and its features that are in use.
  virtual const DeviceInfo& info() const = 0;

  // Throws OutOfMemory if the device has no such memory. Block numbers are reused after free.
  virtual uint32_t allocate_block(uint64_t bytes) = 0;
  // Allocates host memory that kernels can reach, if the device has other memory; numbered among
  // the others.
  virtual uint32_t allocate_host_block(uint64_t bytes) { return allocate_block(bytes); }

  // Makes a block of memory of the host that others own and keep using; `memory` starts at a
  // multiple of 16 bytes, and free_block() gives up this share of it. Nothing: the device does not
  // work on such memory.
  virtual std::optional<uint32_t> adopt_block(const std::shared_ptr<std::byte>& /*memory*/,
                                              uint64_t /*bytes*/) {
    return std::nullopt;
  }

  virtual void free_block(uint32_t block) = 0;  // waits for work that uses it

  // Returns a block of `bytes` that begins with these values, one after the other, in place of all
  // blocks in which they lie, which are freed; values of a block come together, by address. This is
  // for backends that need no second copy of moving values. Nothing: this backend is none, or has
  // no such block, and all is as before.
  virtual std::optional<uint32_t> repack(std::span<const BufferRange> /*values*/,
                                         uint64_t /*bytes*/) {
    return std::nullopt;
  }

  // Host copies, in order with all work queued before. `write` may return before the copy is
  // visible on the device; `source` may be reused at once. `read` waits.
  virtual void write(BufferRange target, const void* source) = 0;
  virtual void read(BufferRange source, void* target) = 0;
  // Queues a copy between blocks, of as many bytes as both ranges have; they must not overlap.
  virtual void copy(BufferRange source, BufferRange target) {
    // A backend that only passes calls on copies through the host.
    std::vector<std::byte> bytes(source.size);
    read(source, bytes.data());
    write(target, bytes.data());
  }

  // Queues one kernel. Calls behave as if executed in order.
  virtual void run(const KernelCall& call) = 0;
  // Prepares what run(call) needs, once for calls that repeat; it looks only at the sizes of
  // bindings' ranges. Null: nothing, and no workspace.
  virtual std::shared_ptr<const Preparation> prepare(const KernelCall&) const { return nullptr; }
  // Returns the scratch bytes that run(call) needs.
  uint64_t workspace_bytes(const KernelCall& call) const {
    const auto preparation = prepare(call);
    return preparation ? preparation->workspace_bytes : 0;
  }

  // Run and prepare a kernel on the host's processor, at once: all that it binds, its workspace
  // too, lies in host blocks, and no queued work may use it any more (mark() tells).
  virtual void run_on_host(const KernelCall& call) { run(call); }
  virtual std::shared_ptr<const Preparation> prepare_on_host(const KernelCall& call) const {
    return prepare(call);
  }

  // Marks the point of the queue after everything queued so far, which is handed to the device, and
  // returns a function that waits for it. It may be called from any thread, without the device's
  // lock, so that others queue more work meanwhile; the backend must be alive.
  virtual std::function<void()> mark() {
    synchronize();
    return [] {};
  }
  // Returns the bytes of a host block, if the host can read them: after a mark() they are those
  // written before it. Null: use read().
  virtual const std::byte* host_bytes(BufferRange /*range*/) { return nullptr; }

  // Returns where the host reads and writes these bytes as if it were a kernel, in order with all
  // that was queued before, as long as the block lives. Null: the device works by itself, or has
  // memory of its own.
  virtual std::byte* host_address(BufferRange /*range*/) { return nullptr; }

  virtual void flush() {}  // hands queued work to the device
  // Waits for all work. DeviceError if the device is lost or does not finish it.
  virtual void synchronize() = 0;
  // Tells whether the device never finished: it may use the backend's memory forever, so nobody
  // destroys it.
  virtual bool hangs() const { return false; }
  virtual BackendStats stats() const { return {}; }  // zeros if nothing is counted

  // Returns a backend that predicts this one: the same workspaces, no memory, no compute, and its
  // own limits or those of `limits`. Null if there is none.
  std::unique_ptr<Backend> dry() const { return dry(info()); }
  virtual std::unique_ptr<Backend> dry(const DeviceInfo& /*limits*/) const { return nullptr; }

  virtual bool is_dry() const { return false; }  // true for a prediction: reads give zeros

  // Returns the current state of the device's heaps; empty if the backend has none.
  virtual std::vector<HeapUsage> heaps() const { return {}; }
  // Returns the choice for every kernel that can run in several ways; empty if there is only one.
  virtual std::vector<KernelVariant> kernel_variants() const { return {}; }
  // Compiles every pipeline that the device may be asked for, which may take minutes, or those of
  // kernels whose names contain `only`. `text` is counted in their machine code. Empty if nothing
  // is compiled.
  virtual std::vector<PipelineStatistics> pipeline_statistics(const std::string& /*text*/,
                                                              const std::string& /*only*/) const {
    return {};
  }
  // Starts or stops measuring when every kernel runs.
  virtual void time_kernels(bool) {}
  // Returns the measurements since the last call, in order. Waits for all work.
  virtual std::vector<KernelTime> kernel_times() { return {}; }
};

}  // namespace rw
