#include "core/memory/work.h"

namespace rw {

namespace {

const Work& of(Phase phase, const WorkByPhase& work) {
  return work[static_cast<size_t>(phase)];
}

}  // namespace

double total_flops(const WorkByPhase& work) {
  double sum = 0;
  for (const Work& w : work) sum += w.flops;
  return sum;
}

double recompute_share(const WorkByPhase& work) {
  const double replay = of(Phase::replay, work).flops, rest = total_flops(work) - replay;
  return rest > 0 ? replay / rest : 0;
}

double modelled_recompute_share(const WorkByPhase& work) {
  const auto cost = [&](Phase phase) {
    const Work& w = of(phase, work);
    return OpCost{w.flops, w.bytes}.total();
  };
  const double rest = cost(Phase::forward) + cost(Phase::backward);
  return rest > 0 ? cost(Phase::replay) / rest : 0;
}

OpCost replay_cost(const WorkByPhase& work) {
  const Work& replay = of(Phase::replay, work);
  return {replay.flops, replay.bytes};
}

uint64_t offloaded_bytes(const WorkByPhase& work) {
  uint64_t sum = 0;
  for (const Work& w : work) sum += w.offloaded;
  return sum;
}

}  // namespace rw
