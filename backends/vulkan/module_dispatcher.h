// Runs single shader modules: checks a call against its module, picks descriptors or addresses,
// computes the grid and records the dispatch.
#pragma once

#include "commands/memory.h"
#include "commands/recorder.h"
#include "commands/staging.h"
#include "passes/dispatcher.h"
#include "pipelines/kernels.h"
#include "pipelines/pipelines.h"

namespace rw::vulkan {

class ModuleDispatcher final : public Dispatcher {
 public:
  ModuleDispatcher(const Device& device, Blocks& blocks, Recorder& recorder, Staging& staging)
      : device_(device),
        blocks_(blocks),
        recorder_(recorder),
        staging_(staging),
        kernels_(device.caps()),
        pipelines_(device) {}

  const Caps& caps() const override { return device_.caps(); }
  void dispatch(const KernelCall& call) override;
  bool available(std::string_view kernel, std::span<const Binding> bindings) const override {
    return kernels_.find(kernel, bindings) != nullptr;
  }

  std::vector<KernelVariant> kernel_variants() const { return kernels_.variants(); }
  size_t pipelines() const { return pipelines_.count(); }
  void work_ahead() { pipelines_.work_ahead(); }

 private:
  using Groups = std::array<uint32_t, 3>;
  struct Part;  // some workgroups of a call
  void record(const Shader& shader, const KernelCall& call, const Part& part);
  const Shader& choose(const KernelCall& call) const;
  void check_call(const Shader& shader, const KernelCall& call) const;
  Groups cube(const Shader& shader, const KernelCall& call) const;
  Groups flat(uint32_t count, std::string_view kernel) const;
  Staging::Piece address_table(const KernelCall& call);
  void limit_texels(const KernelCall& call);
  // `table` is that of a module by address.
  void bind(VkCommandBuffer commands, const Shader& shader, const KernelCall& call,
            const Staging::Piece& table);

  const Device& device_;
  Blocks& blocks_;
  Recorder& recorder_;
  Staging& staging_;
  Kernels kernels_;
  Pipelines pipelines_;
};

}  // namespace rw::vulkan
