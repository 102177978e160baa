#include "backends/vulkan/passes/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backends/vulkan/device/shader_table.h"
#include "shaders/params.h"

namespace rw::vulkan {

namespace {

// The number of threads that share a row.
struct Teams {
  uint64_t groups;
  uint32_t team;    // constant TEAM: 0 the workgroup, 1 a subgroup, 8 lanes
  uint32_t rounds;  // constant ROUNDS
};

// CPU drivers read rows again: these lie in a cache, while registers lie on the stack.
std::optional<Teams> teams_of(const Caps& caps, uint64_t rows, uint64_t cols) {
  constexpr uint32_t needed = feature::arithmetic | feature::shuffle;
  if (caps.is_cpu || cols == 0 || cols % REWIND_FLAT != 0 || (caps.features & needed) != needed)
    return {};
  constexpr uint64_t most_rounds = 4, few_rows = 512;
  const uint64_t lanes = caps.subgroup_size, words = cols / REWIND_FLAT;
  const uint64_t threads = multiple_of(lanes, 128);  // of a workgroup
  uint64_t size = threads;
  uint32_t team = 0;
  if (words <= 16 && lanes % 8 == 0) {
    team = 8;
    size = 8;
  } else if (words <= lanes || (words <= most_rounds * lanes && rows >= few_rows)) {
    team = 1;
    size = lanes;
  } else if (words > most_rounds * threads) {
    return {};
  }
  const uint64_t rounds = divide_up(words, size);
  return Teams{divide_up(rows, threads / size), team,
               rounds > 2 ? 4 : static_cast<uint32_t>(rounds)};
}

template <class P>
void add_rows(Passes& passes, const Caps& caps, const KernelCall& call) {
  const auto p = call.params_as<P>();
  const bool are_flat = std::ranges::all_of(
      p.offset, [](uint32_t offset) { return offset % REWIND_FLAT == 0; });  // unused ones are 0
  if (const auto teams = are_flat ? teams_of(caps, p.rows, p.cols) : std::nullopt)
    return passes.add_whole(fmt::format("{}_kept", call.kernel), call, teams->groups,
                            {call.constant(0), teams->team, teams->rounds});
  passes.add_whole(std::string(call.kernel), call, p.rows, {call.constant(0)});
}

}  // namespace

void add_softmax(Passes& passes, const Caps& caps, const KernelCall& call) {
  add_rows<kernels::SoftmaxParams>(passes, caps, call);
}

void add_layer_norm(Passes& passes, const Caps& caps, const KernelCall& call) {
  add_rows<kernels::LayerNormParams>(passes, caps, call);
}

}  // namespace rw::vulkan
