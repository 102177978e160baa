// Dry runs of GPUs show that the self-check reaches each form of the kernels that a GPU would take.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backends/check_programs.h"
#include "backends/profiles.h"
#include "backends/vulkan/composer.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/pipelines/profile.h"
#include "core/files/json_file.h"
#include "core/memory/default_device.h"
#include "tests/fixtures/guard_backend.h"

namespace rw::test {

namespace {

// A dry backend that records "kernel dtype variant..." of each call.
class Forms : public GuardBackend {
 public:
  explicit Forms(const vulkan::Caps& caps)
      : GuardBackend(vulkan::make_dry_backend(caps, vulkan::to_info(caps)), false) {}
  bool is_dry() const override { return true; }
  void run(const KernelCall& call) override {
    const DType dtype = call.bindings[0].dtype;
    if (const auto* passes =
            dynamic_cast<const vulkan::Passes*>(call.preparation.value_or(nullptr))) {
      for (const vulkan::Pass& pass : passes->list()) {
        add(pass.kernel, dtype, pass.variant);
        const bool has_parts = pass.operands[2].binding == vulkan::Operand::workspace;
        if (call.kernel != "conv2d_wgrad" && pass.kernel.starts_with("conv_") &&
            pass.operand_count == 3 && has_parts)
          add("split convolution", dtype, {});
      }
    } else {
      add(call.kernel, dtype, call.variant);
    }
  }
  std::set<std::string> all;

 private:
  void add(std::string_view kernel, DType dtype, std::span<const uint32_t> variant) {
    all.insert(fmt::format("{} {} {}", kernel, name(dtype), fmt::join(variant, " ")));
  }
};

std::set<std::string> forms_on(const std::string& profile) {
  vulkan::Caps caps = vulkan::parse_caps(read_config_text(find_profile(profile)), profile);
  caps.multiprocessors = 1;  // as devices are opened for checks
  auto backend = std::make_unique<Forms>(caps);
  const Forms& forms = *backend;
  const auto device = Device::create(std::move(backend));
  const DeviceScope scope(device);
  for (const Check& check : checks()) {
    check.run(DType::f32);
    check.run(DType::f16);
    if (check.in_bf16) check.run(DType::bf16);
  }
  return forms.all;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("self-check: every tile of a GPU is reached, in each order and width of loads") {
  const auto variants = [](const char* dtype, std::initializer_list<const char*> loads) {
    std::vector<std::string> all;
    for (const char* order : {"0 0", "0 1", "1 0", "1 1"})
      for (const char* l : loads) all.push_back(fmt::format("{} {} {}", dtype, order, l));
    return all;
  };
  const auto check_all = [](const std::set<std::string>& forms, std::string_view kernel,
                            const std::vector<std::string>& endings) {
    for (const std::string& ending : endings) {
      CAPTURE(kernel);
      CAPTURE(ending);
      CHECK(forms.contains(fmt::format("{} {}", kernel, ending)));
    }
  };
  for (const char* profile :
       {"rx7900xtx.json", "rx6800.json", "nvk-ampere.json", "apple-m1.json", "adreno750.json"}) {
    CAPTURE(profile);
    const std::set<std::string> forms = forms_on(profile);
    const auto has = [&](const std::string& part) {
      return std::any_of(forms.begin(), forms.end(),
                         [&](const std::string& form) { return form.starts_with(part); });
    };
    for (const char* size : {"32", "64"})
      check_all(forms, fmt::format("gemm_tiled.TILE{}", size), variants("f32", {"1 1"}));
    CHECK(has("matrix_reduce f32"));  // for split sums
    CHECK(has("matrix_reduce bf16"));
    check_all(forms, "conv_wgrad_tiled.TILE128", {"f32 1 1", "bf16 1 1"});
    check_all(forms, "gemm_tiled.TILE128", variants("f32", {"1 1", "0 0"}));
    check_all(forms, "conv_tiled.TILE128", {"f32 1 1", "bf16 1 1"});
    for (const char* dtype : {"f32", "f16", "bf16"})
      CHECK(has(fmt::format("split convolution {}", dtype)));
    for (const char* kernel :
         {"attention_tiled.TILE", "attention_dq_tiled.TILE", "attention_dkv_tiled.TILE"})
      CHECK(has(kernel));
    if (has("gemm_cooperative")) {
      const std::string cooperative = "cooperative.FACTORSf16.TILE128";
      check_all(forms, "gemm_" + cooperative, variants("f16", {"1 1", "0 0"}));
      check_all(forms, "conv_" + cooperative, {"f16 1 1", "f16 0 1"});
      check_all(forms, "conv_wgrad_" + cooperative, {"f16 1 1"});
      for (const char* kernel : {"attention", "attention_dq", "attention_dkv"})
        check_all(forms, fmt::format("{}_cooperative.FACTORSf16", kernel),
                  {"f16 0 1 16", "f16 1 1 32", "f16 1 3 32"});
    } else {
      check_all(forms, "gemm_tiled.TILE128", variants("f16", {"1 1", "0 0"}));
      check_all(forms, "conv_tiled.TILE128", {"f16 1 1", "f16 0 1"});
    }
  }
}

TEST_SUITE_END();

}  // namespace rw::test
