// Models in files. A foreign format is a list of names with views of the model's tensors in that
// format's layout: saving reads the views, and loading writes through them.
#pragma once

#include <filesystem>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "../../nn/module.h"
#include "../formats/safetensors.h"

namespace rw {

// Tensors by name, in the order of the file or model.
using StateDict = std::vector<NamedTensor>;

// Parameters, then buffers, in the model's own layout. Handles to the same storage.
StateDict state_dict(const Module& module);
// The same under PyTorch's names and in its layout: convolution weights (all parameters of rank 4
// here, and Module::channels_last_parameters) are OIHW. An ImageNet ResNet has torchvision's state
// dict.
StateDict torch_state_dict(const Module& module);
// Replaces the first match of `from` in each name by `to`; rules apply one after the other.
struct Renaming {
  std::string from, to;
};
// The tensors under their new names, in their order.
StateDict renamed(StateDict tensors, const std::vector<Renaming>& rules);

// The names that did not match.
struct LoadResult {
  std::vector<std::string> missing;     // wanted, not in the file
  std::vector<std::string> unexpected;  // in the file, not wanted
};
// Fills the tensors from the file. Shapes must agree, and with `strict` names, too. Otherwise it
// throws FileError with everything that is wrong, before anything is written. PyTorch's counters
// num_batches_tracked are ignored.
LoadResult load_tensors(const SafetensorsFile& file, const StateDict& tensors, bool strict = true);
// The same, strictly, from several files that together have each of the tensors once, whole or in
// parts (optim/base/state_parts.h), whose cuts may differ from those of the tensors; `ignored`
// names may exist and are left alone, with their parts.
void load_tensors(const std::list<SafetensorsFile>& files, const StateDict& tensors,
                  const std::set<std::string>& ignored = {});

// Writes the model in PyTorch's layout, with floats as `dtype`, as a safetensors file that is
// written whole or not at all. Loading converts back: parameters are f32. Throws like
// load_tensors().
void save_model(const std::filesystem::path& path, const Module& module,
                const Metadata& metadata = {}, DType dtype = DType::f32);
LoadResult load_model(const std::filesystem::path& path, Module& module, bool strict = true);
// The device work of saving or loading, without a file: for dry runs (planner/forecast/program.h).
void copy_as_file(const Module& module);

}  // namespace rw
