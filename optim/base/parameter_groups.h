// The parameters that an optimizer receives: in groups with options of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// How the state of parameters, or these themselves, are kept in host memory.
struct Offload {
  // The bytes of a part. Three parts of state are on the device during an update: one is updated
  // while the next arrives and the previous one goes back. Parts of a parameter have at least 2^18
  // elements. State that cannot be cut (Adafactor, Muon, LAMB, 8-bit states) and is larger is
  // updated in host memory, over the bus.
  uint64_t part_bytes = uint64_t{32} << 20;
  // If the parameters are offloaded, too: the most bytes of them that are on the device at a time,
  // unless one is larger. 0: all of them are there.
  uint64_t parameter_bytes = 0;
  // Whether the host's processor updates them, as the device `cpu` would: gradients go there, and
  // only values come back. What updates each gradient as it comes (AdamA) does not do this.
  bool updates_on_host = false;
};

// The share of the state that this process keeps when several update parameters together (dist/).
// Each rank has about equally many elements, in the order of the parameters. Several ranks may
// share a parameter, unless its optimizer's rule looks at it as a whole (Adafactor, LAMB, Muon).
struct Shard {
  int rank = 0, ranks = 1;  // in [0, ranks)
  // If parameters are sharded, too: the most bytes of parameters that are gathered together, unless
  // one is larger. 0: every rank has all of them.
  uint64_t gathered_bytes = 0;
  bool operator==(const Shard&) const = default;
};

// Parameters that share options. Frozen ones (requires_grad() false) are left out.
struct ParameterGroup {
  std::vector<Tensor> parameters = {};               // float leaves
  float lr_scale = 1;                                // on the optimizer's learning rate
  std::optional<float> weight_decay = std::nullopt;  // instead of the optimizer's
  std::optional<Offload> offload = std::nullopt;     // where their state lies; none: on the device
  std::optional<Shard> shard = std::nullopt;         // whose state is kept here; none: of all
};
// One group of all parameters, with the optimizer's options.
inline std::vector<ParameterGroup> one_group(std::vector<Tensor> parameters) {
  return {{.parameters = std::move(parameters)}};
}

// The same groups, with what an optimizer keeps for them (moments, and the f32 masters of 16-bit
// parameters) in host memory that the device's kernels can reach. Updates give the same bits. If
// device memory is host memory, nothing is gained. ValueError for part_bytes of 0.
std::vector<ParameterGroup> offload_states(std::vector<ParameterGroup> groups,
                                           const Offload& how = {});
std::vector<ParameterGroup> offload_states(std::vector<Tensor> parameters, const Offload& how = {});

// The same, and the parameters lie in host memory as well. Each comes to the device when a kernel
// is about to use it, the next one while the device works, and goes when others want the room, back
// to host memory if it was changed. Small ones stay. Updates give the same bits. Gradients are made
// on the device: FusedBackward uses each of them at once, and sums of Accumulate go to host memory,
// unless it judges their overflows or keeps them in 16 bits. Each parameter is a run of its own,
// and there are no 16-bit copies of f32 parameters (set_weight_copies). Models that are made under
// init::HostParameters never have all parameters on the device. If how.parameter_bytes is 0, it is
// 512 MiB.
std::vector<ParameterGroup> offload_parameters(std::vector<ParameterGroup> groups,
                                               Offload how = {});
std::vector<ParameterGroup> offload_parameters(std::vector<Tensor> parameters,
                                               const Offload& how = {});

// The same groups, with the states divided among ranks: each rank keeps and updates its part of the
// elements, and the others receive the values from it through DataParallel (ZeRO 1, Rajbhandari et
// al. 2020). Updates give the same bits. All groups of an optimizer need the same shard, and none
// may be offloaded: ValueError.
std::vector<ParameterGroup> shard_states(std::vector<ParameterGroup> groups, const Shard& shard);
std::vector<ParameterGroup> shard_states(std::vector<Tensor> parameters, const Shard& shard);

// The same, and each rank keeps only the values of its part: those of others are in its memory
// while kernels read them, as DataParallel says (ZeRO 3, the same source). Only their owner has the
// masters of 16-bit parameters. There are no 16-bit copies of f32 parameters (set_weight_copies).
std::vector<ParameterGroup> shard_parameters(std::vector<ParameterGroup> groups, Shard shard);
std::vector<ParameterGroup> shard_parameters(std::vector<Tensor> parameters, const Shard& shard);

// Two groups: parameters with two axes or more decay by `weight_decay`; biases and the weights of
// normalisation, which have one axis, do not.
std::vector<ParameterGroup> decay_groups(const std::vector<Tensor>& parameters, float weight_decay);

// The parameters whose name matches a pattern, with options of their own.
struct NamedGroup {
  std::string pattern;  // as file names: `*` and `?` ("encoder.*.bias")
  float lr_scale = 1;   // on the optimizer's learning rate
  std::optional<float> weight_decay = std::nullopt;  // instead of the optimizer's
  bool is_frozen = false;  // left out, and they collect no gradients any more
};
// A group for each of `named`, with the parameters that its pattern matches and no earlier one did,
// and one for the rest. The names are those that Module::parameters() gave. ValueError for a
// pattern that matches nothing.
std::vector<ParameterGroup> groups_by_name(const std::vector<Tensor>& parameters,
                                           const std::vector<NamedGroup>& named);

}  // namespace rw
