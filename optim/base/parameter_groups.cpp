#include "optim/base/parameter_groups.h"

#include <fnmatch.h>

#include "core/base/error.h"
#include "core/memory/stream.h"

namespace rw {

std::vector<ParameterGroup> groups_by_name(const std::vector<Tensor>& parameters,
                                           const std::vector<NamedGroup>& named) {
  std::vector<ParameterGroup> groups;
  for (const NamedGroup& group : named)
    groups.push_back({.lr_scale = group.lr_scale, .weight_decay = group.weight_decay});
  groups.emplace_back();  // the rest
  std::vector<size_t> matched(named.size());
  for (const Tensor& parameter : parameters) {
    size_t i = 0;
    const char* name = parameter.impl().name.c_str();
    while (i < named.size() && fnmatch(named[i].pattern.c_str(), name, 0) != 0) ++i;
    if (i < named.size()) ++matched[i];
    if (i < named.size() && named[i].is_frozen)
      Tensor(parameter).set_requires_grad(false);
    else
      groups[i].parameters.push_back(parameter);
  }
  for (size_t i = 0; i < named.size(); ++i)
    check(matched[i] > 0, "groups_by_name", "each pattern must match a parameter, got '{}'",
          named[i].pattern);
  return groups;
}

std::vector<ParameterGroup> decay_groups(const std::vector<Tensor>& parameters,
                                         float weight_decay) {
  ParameterGroup decaying{.weight_decay = weight_decay}, others{.weight_decay = 0.0f};
  for (const Tensor& p : parameters) (p.rank() >= 2 ? decaying : others).parameters.push_back(p);
  return {std::move(decaying), std::move(others)};
}

std::vector<ParameterGroup> offload_states(std::vector<ParameterGroup> groups, const Offload& how) {
  for (ParameterGroup& group : groups) group.offload = how;
  return groups;
}

std::vector<ParameterGroup> offload_states(std::vector<Tensor> parameters, const Offload& how) {
  return offload_states(one_group(std::move(parameters)), how);
}

std::vector<ParameterGroup> offload_parameters(std::vector<ParameterGroup> groups, Offload how) {
  if (how.parameter_bytes == 0) how.parameter_bytes = usual_streamed_bytes;
  return offload_states(std::move(groups), how);
}

std::vector<ParameterGroup> offload_parameters(std::vector<Tensor> parameters, const Offload& how) {
  return offload_parameters(one_group(std::move(parameters)), how);
}

std::vector<ParameterGroup> shard_states(std::vector<ParameterGroup> groups, const Shard& shard) {
  if (shard.ranks == 1) return groups;
  for (ParameterGroup& group : groups) group.shard = shard;
  return groups;
}

std::vector<ParameterGroup> shard_states(std::vector<Tensor> parameters, const Shard& shard) {
  return shard_states(one_group(std::move(parameters)), shard);
}

std::vector<ParameterGroup> shard_parameters(std::vector<ParameterGroup> groups, Shard shard) {
  if (shard.gathered_bytes == 0) shard.gathered_bytes = uint64_t{8} << 20;
  return shard_states(std::move(groups), shard);
}

std::vector<ParameterGroup> shard_parameters(std::vector<Tensor> parameters, const Shard& shard) {
  return shard_parameters(one_group(std::move(parameters)), shard);
}

}  // namespace rw
