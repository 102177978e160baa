// Models in files. A foreign format is a list of names with views of the model's tensors in that
// format's layout: saving reads the views, loading writes through them.
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
// The same under PyTorch's names and in its layout: convolution weights (here all parameters of
// rank 4, and Module::channels_last_parameters) are OIHW. An ImageNet ResNet has torchvision's
// state dict.
StateDict torch_state_dict(const Module& module);
// Replaces the first match of `from` in each name by `to`; rules apply in turn.
struct Renaming {
  std::string from, to;
};
// The tensors under the names that the rules give, in their order.
StateDict renamed(StateDict tensors, const std::vector<Renaming>& rules);

// What did not match, by name.
struct LoadResult {
  std::vector<std::string> missing;     // wanted, not in the file
  std::vector<std::string> unexpected;  // in the file, not wanted
};
// Fills the tensors from the file. Shapes must agree; with `strict` names must, too. Otherwise
// throws FileError with all that is wrong, before anything is written. PyTorch's counters
// num_batches_tracked are ignored.
LoadResult load_tensors(const SafetensorsFile& file, const StateDict& tensors, bool strict = true);
// The same, strictly, from files that have each of the tensors once, all of them together, or in
// parts (optim/base/state_parts.h), as others than those which are wanted, too; `ignored`: names
// that may be there, and are left alone with their parts.
void load_tensors(const std::list<SafetensorsFile>& files, const StateDict& tensors,
                  const std::set<std::string>& ignored = {});

// The model in PyTorch's layout, floats as `dtype`, as a safetensors file that is written whole or
// not at all. Loading converts back: parameters are f32. Errors as of load_tensors().
void save_model(const std::filesystem::path& path, const Module& module,
                const Metadata& metadata = {}, DType dtype = DType::f32);
LoadResult load_model(const std::filesystem::path& path, Module& module, bool strict = true);
// The device work of either, without a file: for dry runs (planner/forecast/program.h).
void copy_as_file(const Module& module);

}  // namespace rw
