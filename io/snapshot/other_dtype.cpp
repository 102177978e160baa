#include "io/snapshot/other_dtype.h"

#include <map>

#include "io/formats/transfer.h"
#include "optim/base/state_parts.h"

namespace rw {

bool has_other_dtype(const SnapshotFiles& snapshot, const Module& model, bool may_change) {
  const SafetensorsFile& index = snapshot.files().front();
  for (const auto& [name, parameter] : model.named_parameters()) {
    const auto stored = index.tensors().find("model." + name);
    if (stored == index.tensors().end() || stored->second.dtype == stored_name(parameter.dtype()))
      continue;
    check<FileError>(may_change, "snapshot",
                     "'{}' must have parameters of the model's dtype, got {} and {} of '{}'; "
                     "TrainingState::change_dtype (--change-dtype) allows another",
                     index.path(), stored->second.dtype, stored_name(parameter.dtype()), name);
    return true;
  }
  return false;
}

void read_masters(const SnapshotFiles& snapshot, const Module& model, const Optimizer& optimizer,
                  StateDict& tensors, std::set<std::string>& ignored) {
  const FlatParameters& parameters = optimizer.parameters();
  check<FileError>(
      !parameters.shard(), "snapshot",
      "only an optimizer that keeps all states can continue in another dtype, got one of "
      "rank {} of {}; let a single process resume and save",
      parameters.shard()->rank, parameters.shard()->ranks);
  std::set<std::string> saved;  // including masters in parts
  for (const SafetensorsFile& file : snapshot.files())
    for (const auto& [name, tensor] : file.tensors()) saved.insert(whole_name(name));
  std::map<const TensorImpl*, std::string> names;
  for (const auto& [name, parameter] : model.named_parameters())
    names.emplace(&parameter.impl(), "model." + name);
  for (const FlatParameters::Slot& slot : parameters.slots()) {
    const std::string master = "optimizer.master." + slot.name;
    const auto found = names.find(&slot.parameter.impl());
    if (found == names.end()) continue;  // of another module: read as it was saved
    std::erase_if(
        tensors, [&](const NamedTensor& t) { return t.name == found->second || t.name == master; });
    tensors.push_back({saved.contains(master) ? master : found->second, parameters.master(slot)});
    ignored.insert({master, found->second});
  }
}

void round_masters(const Optimizer& optimizer) {
  const NoGrad guard;
  for (const FlatParameters::Slot& slot : optimizer.parameters().slots())
    if (Tensor parameter = slot.parameter; parameter.dtype() != DType::f32)
      parameter.copy_(optimizer.parameters().master(slot));
}

}  // namespace rw
