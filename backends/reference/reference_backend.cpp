#include "backends/reference/reference_backend.h"

#include "backends/dry/dry_backend.h"
#include "backends/reference/host_backend.h"
#include "backends/reference/run_kernel.h"

namespace rw {

namespace {

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend() : HostBackend("reference") {}

  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(limits);
  }

  std::vector<KernelVariant> kernel_variants() const override {
    return reference::kernel_variants();
  }

 private:
  void execute(const KernelCall& call, std::span<std::byte* const> memory, std::byte*) override {
    reference::run_kernel(call, memory);
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace rw
