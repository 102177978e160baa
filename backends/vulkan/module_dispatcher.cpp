#include "backends/vulkan/module_dispatcher.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/passes/passes.h"
#include "core/backend/halves.h"

namespace rw::vulkan {

namespace {

// Kernels read whole words of 16 bytes, and an empty binding needs one, too.
uint64_t bound_bytes(const BufferRange& range) {
  return std::max<uint64_t>(16, round_up(range.size, 16));
}

bool writes(Access access) {
  return access != Access::read;
}
bool reads(Access access) {
  return access != Access::write;
}

}  // namespace

// The workgroups of a dispatch, the number of the first one in the call, and the work that they do.
struct ModuleDispatcher::Part {
  Groups groups;
  uint32_t first;
  double flops, bytes;
};

void ModuleDispatcher::dispatch(const KernelCall& call) {
  check<ValueError>(call.bindings.size() <= kMaxBindings, call.kernel,
                    "a call must have at most {} bindings, got {}", kMaxBindings,
                    call.bindings.size());
  const Shader& shader = choose(call);
  check_call(shader, call);
  const auto bytes = static_cast<double>(bytes_moved(call));
  if (shader.grid == Grid::cube)
    return record(shader, call, {cube(shader, call), 0, call.flops, bytes});

  const uint32_t all = workgroups(shader, call, caps())[0];
  const double most = caps().dispatch_seconds;
  for (uint32_t done = 0; done < all;) {
    const double seconds = most > 0 ? recorder_.expect(shader.kernel, call.flops, bytes) : 0;
    const uint32_t count = groups_at_once(all, all - done, seconds, most, caps().max_groups[0]);
    const double share = static_cast<double>(count) / all;
    const bool is_guess = count < all - done && !recorder_.is_measured(shader.kernel);
    record(shader, call, {flat(count, call.kernel), done, call.flops * share, bytes * share});
    if (is_guess) recorder_.finish_all();  // measured: the rest may fit at once
    done += count;
  }
}

void ModuleDispatcher::record(const Shader& shader, const KernelCall& call, const Part& part) {
  const bool brain = has_dtype(call.bindings, DType::bf16);
  const VkPipeline pipeline = pipelines_.get(shader, call.variant, brain);
  Staging::Piece table{};
  if (shader.address) table = address_table(call);

  std::array<Use, kMaxBindings> uses;
  std::transform(call.bindings.begin(), call.bindings.end(), uses.begin(),
                 [](const Binding& b) { return use_of(b); });
  if (shader.features & feature::texels) limit_texels(call);
  VkCommandBuffer commands =
      recorder_.begin_kernel({uses.data(), call.bindings.size()}, shader.kernel);
  for (const Binding& b : call.bindings) blocks_.at(b.range.block).last_use = recorder_.current();

  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  bind(commands, shader, call, table);
  std::array<std::byte, 128> push;  // the parameters, and the first group
  const size_t bytes = call.params.size();
  std::copy(call.params.begin(), call.params.end(), push.begin());
  std::memcpy(push.data() + bytes, &part.first, sizeof part.first);
  vkCmdPushConstants(commands, pipelines_.layout(shader).pipeline, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                     static_cast<uint32_t>(bytes + sizeof part.first), push.data());
  vkCmdDispatch(commands, part.groups[0], part.groups[1], part.groups[2]);
  ++recorder_.dispatches;
  recorder_.end(part.flops, part.bytes);
}

const Shader& ModuleDispatcher::choose(const KernelCall& call) const {
  const Kernel& kernel = kernels_.get(call.kernel, call.bindings);
  const bool fits = std::all_of(call.bindings.begin(), call.bindings.end(), [&](const Binding& b) {
    return bound_bytes(b.range) <= caps().max_range;
  });
  if (kernel.descriptors && (fits || !kernel.address)) {
    check<DeviceError>(
        fits, call.kernel,
        "bindings must have at most {} bytes: the device has no buffer addresses, or f16 but no "
        "16-bit storage",
        caps().max_range);
    return *kernel.descriptors;
  }
  return *kernel.address;
}

void ModuleDispatcher::check_call(const Shader& shader, const KernelCall& call) const {
  const size_t params = shader.push_bytes - sizeof Part::first;
  check<ValueError>(call.params.size() == params, call.kernel,
                    "the parameter struct must have {} bytes, got {}", params, call.params.size());
  for (size_t i = 0; i < call.bindings.size(); ++i) {
    const Binding& b = call.bindings[i];
    const Access needed = shader.bindings[i].access;
    check<ValueError>((writes(b.access) || !writes(needed)) && (reads(b.access) || !reads(needed)),
                      call.kernel, "binding {} must be declared with the shader's access", i);
    check<ValueError>(b.range.offset % caps().offset_alignment == 0, call.kernel,
                      "binding {} must begin at a multiple of {} bytes, got {}", i,
                      caps().offset_alignment, b.range.offset);
    blocks_.at(BufferRange{b.range.block, b.range.offset, bound_bytes(b.range)});
  }
}

ModuleDispatcher::Groups ModuleDispatcher::cube(const Shader& shader,
                                                const KernelCall& call) const {
  const Groups groups = workgroups(shader, call, caps());
  const Groups& most = caps().max_groups;
  check<ValueError>(groups[0] <= most[0] && groups[1] <= most[1] && groups[2] <= most[2],
                    call.kernel, "at most {} x {} x {} workgroups are possible, got {} x {} x {}",
                    most[0], most[1], most[2], groups[0], groups[1], groups[2]);
  return groups;
}

// Splits this many workgroups into as many rows as they need.
ModuleDispatcher::Groups ModuleDispatcher::flat(uint32_t count, std::string_view kernel) const {
  const Groups& most = caps().max_groups;
  const auto rows = static_cast<uint32_t>(divide_up(count, most[0]));
  check<ValueError>(rows <= most[1], kernel, "{} workgroups are too many for the device", count);
  return {static_cast<uint32_t>(divide_up(count, rows)), rows, 1};
}

Staging::Piece ModuleDispatcher::address_table(const KernelCall& call) {
  std::array<uint64_t, kMaxBindings> addresses{};
  for (size_t i = 0; i < call.bindings.size(); ++i) {
    const BufferRange& r = call.bindings[i].range;
    addresses[i] = blocks_.at(r.block).address + r.offset;
  }
  const Staging::Piece piece = staging_.take(sizeof addresses);
  std::memcpy(piece.data, addresses.data(), sizeof addresses);
  return piece;
}

// bind() makes the views of what is bound for the first time; views of a block must not pile up.
void ModuleDispatcher::limit_texels(const KernelCall& call) {
  constexpr size_t most = 4096;
  for (const Binding& b : call.bindings) {
    Buffer& block = blocks_.at(b.range.block);
    if (block.texels.size() < most) continue;
    recorder_.wait(block.last_use);
    forget_texels(device_, block);
  }
}

void ModuleDispatcher::bind(VkCommandBuffer commands, const Shader& shader, const KernelCall& call,
                            const Staging::Piece& table) {
  std::array<VkDescriptorBufferInfo, kMaxBindings> buffers;
  std::array<VkBufferView, kMaxBindings> texels;
  std::array<VkWriteDescriptorSet, 2 * kMaxBindings> writes;
  uint32_t count = 0;
  const auto add = [&](size_t binding, VkDescriptorType type) -> VkWriteDescriptorSet& {
    VkWriteDescriptorSet& write = writes[count++];
    write = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    write.dstBinding = static_cast<uint32_t>(binding);
    write.descriptorCount = 1;
    write.descriptorType = type;
    return write;
  };
  const auto add_buffer = [&](size_t i, const VkDescriptorBufferInfo& buffer) {
    buffers[i] = buffer;
    add(i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER).pBufferInfo = &buffers[i];
  };
  if (shader.address) add_buffer(0, {table.buffer, table.offset, kMaxBindings * sizeof(uint64_t)});
  for (size_t i = 0; i < call.bindings.size(); ++i) {
    const BufferRange& r = call.bindings[i].range;
    Buffer& block = blocks_.at(r.block);
    if (!shader.address) add_buffer(i, {block.handle, r.offset, bound_bytes(r)});
    if (!(shader.features & feature::texels) || !reads(shader.bindings[i].access)) continue;
    texels[i] = texels_of(device_, block, r.offset, bound_bytes(r));
    add(kTexels + i, VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER).pTexelBufferView = &texels[i];
  }
  if (count == 0) return;
  const Pipelines::Layout& layout = pipelines_.layout(shader);
  if (device_.push_descriptor_set) {
    device_.push_descriptor_set(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline, 0, count,
                                writes.data());
    return;
  }
  const VkDescriptorSet set = recorder_.allocate_set(layout.set);
  for (uint32_t i = 0; i < count; ++i) writes[i].dstSet = set;
  vkUpdateDescriptorSets(device_.handle(), count, writes.data(), 0, nullptr);
  vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout.pipeline, 0, 1, &set, 0,
                          nullptr);
}

}  // namespace rw::vulkan
