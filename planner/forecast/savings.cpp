#include "planner/forecast/savings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/thread_state.h"

namespace rw {

std::vector<Saving> attribute_savings(const Planner& planner, const StepSettings& settings) {
  StepSettings now = {
      .dtype = DType::f32,
      .batch = settings.batch * settings.accumulate,
      .evaluation_batch = settings.evaluation_batch ? settings.evaluation_batch : settings.batch};
  now.checkpoint = "none";
  const OverwriteScope overwrites(false);
  const DropScope drops(false);
  const MemoryReport plain = planner.forecast(now, {.memory = DryMemory::unlimited}).memory;
  std::vector<Saving> rows = {
      {"f32, the whole batch at once, all kept", std::max(plain.naive, plain.peak)},
      {"memory used again after a tensor dies", plain.peak}};
  const auto add = [&](const std::string& technique) {
    rows.push_back({technique, planner.peak(now)});
  };
  context().overwrites = true;
  add("ops that overwrite their input");
  if (is_half(settings.dtype)) {
    now.dtype = settings.dtype;
    add(now.dtype == DType::bf16 ? "bf16 activations" : "f16 activations");
  }
  if (settings.checkpoint != "none" && !settings.recompute) {
    context().drops_segments = true;
    now.checkpoint = settings.checkpoint;
    now.checkpoint_every = settings.checkpoint_every;
    add("checkpoint segments");
    now.host_boundaries = settings.host_boundaries;
    if (now.host_boundaries) add("their boundaries in host memory");
  }
  if (settings.mlp_rows) {
    context().drops_segments = true;
    now.mlp_rows = settings.mlp_rows;
    add("MLPs of some tokens at a time");
  }
  if (settings.accumulate > 1) {
    now.batch = settings.batch;
    now.accumulate = settings.accumulate;
    add("gradient accumulation");
  }
  if (settings.fused_update) {
    now.fused_update = settings.fused_update;
    add("updates inside backward");
  }
  if (settings.states_in_8_bits) {
    now.states_in_8_bits = true;
    add("moments in 8 bits");
  }
  if (settings.offload != "none") {
    now.offload = settings.offload;
    add(now.offload.starts_with("states") ? "optimizer states in host memory"
        : now.offload == "file"           ? "frozen weights in their file"
                                          : "states and parameters in host memory");
  }
  if (settings.ranks > 1) {
    now.ranks = settings.ranks;
    now.rank = settings.rank;
    add("sums and messages of ranks");
    now.shard = settings.shard;
    if (now.shard != "none") add("parts instead of all on each rank");
  }
  if (settings.recompute) {
    context().drops_segments = true;
    now.recompute = settings.recompute;
    now.budget = settings.budget;
    add(plan_text(*settings.recompute));
  }
  return rows;
}

std::string plan_text(const Plan& plan) {
  return plan.in_8_bits == 0
             ? "planned recomputation"
             : fmt::format("recomputation, {} in 8 bits", format_bytes(plan.in_8_bits));
}

std::string savings_table(const std::vector<Saving>& savings) {
  std::string out = fmt::format("Savings, with one more technique in each row:\n  {:<40}{:>26}\n",
                                savings[0].technique, format_bytes(savings[0].peak));
  for (size_t i = 1; i < savings.size(); ++i) {
    const auto before = static_cast<double>(savings[i - 1].peak);
    const bool saves = savings[i].peak <= savings[i - 1].peak;
    const uint64_t change =
        saves ? savings[i - 1].peak - savings[i].peak : savings[i].peak - savings[i - 1].peak;
    out +=
        fmt::format("  {:<40}{:>13}{:>13}{:>7.2f}x\n", savings[i].technique,
                    fmt::format("{}{}",
                                change == 0 ? ""
                                : saves     ? "-"
                                            : "+",
                                format_bytes(change)),
                    format_bytes(savings[i].peak), before / static_cast<double>(savings[i].peak));
  }
  return out;
}

}  // namespace rw
