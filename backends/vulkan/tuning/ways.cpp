#include "backends/vulkan/tuning/ways.h"

#include <fmt/ranges.h>

#include "backends/vulkan/matrix/matrix.h"
#include "backends/vulkan/matrix/matrix_passes.h"

namespace rw::vulkan {

namespace {

// Everything that determines a pass.
std::string text_of(const Pass& pass) {
  std::string text =
      fmt::format("{} {} {}", pass.kernel, pass.threads, fmt::join(pass.variant, ","));
  for (size_t i = 0; i < pass.operand_count; ++i) {
    const Operand& o = pass.operands[i];
    text += fmt::format(" {} {} {}", o.binding, o.offset, o.size);
  }
  text.append(reinterpret_cast<const char*>(pass.params.data()), pass.params_size);
  return text + "\n";
}

// The family of the kernels of these passes. A choice that a device cannot run results in kernels
// of another family.
Choice::Family family_of(const std::string& passes) {
  constexpr std::pair<const char*, Choice::Family> kernels[] = {
      {"_cooperative.", Choice::Family::cooperative},
      {"_tiled.", Choice::Family::tiled},
      {"_subgroup ", Choice::Family::subgroup},
      {"gemm_naive ", Choice::Family::naive},
      {"_direct ", Choice::Family::naive}};
  for (const auto& [kernel, family] : kernels)
    if (passes.find(kernel) != passes.npos) return family;
  return Choice::Family::any;
}

std::vector<Choice> all_of(bool is_cpu) {
  std::vector<Choice> all;
  for (const Choice& plain : plain_choices(is_cpu)) {
    std::vector<Choice> paneled = with_panels(plain);
    paneled.insert(paneled.begin(), plain);
    for (const Choice& c : paneled) {
      all.push_back(c);
      for (const Choice& split : with_parts(c)) all.push_back(split);
    }
  }
  return all;
}

}  // namespace

Ways::Ways(std::span<const KernelCall> calls, const Caps& caps)
    : calls_(calls.begin(), calls.end()), caps_(caps) {
  const std::string standard = passes_of({});
  made_.insert(standard);
  for (const Choice& c : plain_choices(caps_.is_cpu))
    if (family_of(standard) == c.family && passes_of(c) == standard) {
      standard_ = c;
      break;
    }
}

std::vector<Choice> Ways::fresh(std::span<const Choice> choices) {
  std::vector<Choice> found;
  for (const Choice& c : choices)
    if (made_.insert(passes_of(c)).second) found.push_back(c);
  return found;
}

std::string Ways::passes_of(const Choice& choice) const {
  std::string text;
  for (const KernelCall& call : calls_) {
    Passes passes;
    add_product(passes, caps_, call, choice);
    for (const Pass& pass : passes.list()) text += text_of(pass);
  }
  return text;
}

std::vector<Choice> admitted(std::span<const KernelCall> calls, const Caps& caps) {
  Ways ways(calls, caps);
  std::vector<Choice> all = ways.fresh(all_of(caps.is_cpu));
  all.insert(all.begin(), ways.standard());
  return all;
}

}  // namespace rw::vulkan
