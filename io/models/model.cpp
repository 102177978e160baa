#include "io/models/model.h"

#include <algorithm>
#include <set>

#include "ops/ops.h"
#include "optim/base/state_parts.h"

namespace rw {

namespace {

// "; missing: a, b" with at most ten names, or nothing.
std::string listed(const char* title, const std::vector<std::string>& names) {
  constexpr size_t most = 10;
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i > 0 ? ", " : fmt::format("; {}: ", title)) + names[i];
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

using Files = std::vector<const SafetensorsFile*>;

// The file that contains the name, or null.
const SafetensorsFile* file_with(const Files& files, const std::string& name) {
  const auto found = std::ranges::find_if(
      files, [&](const SafetensorsFile* file) { return file->tensors().contains(name); });
  return found == files.end() ? nullptr : *found;
}

// Finds tensors that the files hold under other names: as parts of the wanted tensor, or in a
// tensor of which it is a part.
class PartsInFiles {
 public:
  explicit PartsInFiles(const Files& files) {
    for (const SafetensorsFile* file : files)
      for (const auto& [name, stored] : file->tensors()) {
        if (!stored.unread.empty()) continue;
        parts_.add(name, stored.shape.numel());
        stored_.emplace_back(file, name);
      }
  }
  bool have(const std::string& name, const Tensor& target) const {
    return target.is_contiguous() && parts_.pieces(name, target.numel()).has_value();
  }
  void read(const std::string& name, const Tensor& target) const {
    const auto pieces = parts_.pieces(name, target.numel());
    for (const SavedParts::Piece& piece : *pieces) {
      const auto& [file, stored] = stored_[piece.saved];
      file->read(stored, piece.from,
                 make_view(target, {piece.size}, {1}, target.impl().offset + piece.to));
    }
  }

 private:
  SavedParts parts_;
  std::vector<std::pair<const SafetensorsFile*, std::string>> stored_;  // by number
};

LoadResult load_from(const Files& files, const StateDict& tensors, bool strict,
                     const std::set<std::string>& ignored) {
  LoadResult result;
  std::vector<std::string> mismatched, unread;
  std::set<std::string> known = ignored;
  std::optional<PartsInFiles> parts;  // for tensors that no file holds whole
  for (const auto& [name, tensor] : tensors) {
    known.insert(whole_name(name));
    const SafetensorsFile* file = file_with(files, name);
    if (!file) {
      if (!parts) parts.emplace(files);
      if (!parts->have(name, tensor)) result.missing.push_back(name);
    } else if (const StoredTensor& stored = file->tensors().find(name)->second;
               !stored.unread.empty()) {
      unread.push_back(fmt::format("{} {}", name, stored.unread));
    } else if (const Shape& shape = file->tensors().find(name)->second.shape;
               shape != tensor.shape()) {
      mismatched.push_back(
          fmt::format("{} is {}, not {}", name, shape.str(), tensor.shape().str()));
    }
  }
  for (const SafetensorsFile* file : files)
    for (const auto& [name, stored] : file->tensors())
      if (file_with(files, name) != file ||
          (!known.contains(whole_name(name)) && !known.contains(name) &&
           !name.ends_with("num_batches_tracked")))
        result.unexpected.push_back(name);

  const bool names_agree = result.missing.empty() && result.unexpected.empty();
  check<FileError>(mismatched.empty() && unread.empty() && (names_agree || !strict), "load",
                   "'{}' does not fit the model{}{}{}{}", files.front()->path(),
                   listed("not read", unread), listed("other shapes", mismatched),
                   listed("missing", result.missing), listed("unexpected", result.unexpected));
  for (const auto& [name, tensor] : tensors) {
    if (const SafetensorsFile* file = file_with(files, name))
      file->read(name, tensor);
    else if (parts->have(name, tensor))
      parts->read(name, tensor);
  }
  return result;
}

}  // namespace

StateDict state_dict(const Module& module) {
  StateDict tensors = module.named_parameters();
  for (NamedTensor& buffer : module.named_buffers()) tensors.push_back(std::move(buffer));
  for (NamedTensor& t : tensors) t.tensor = t.tensor.detach();
  return tensors;
}

StateDict torch_state_dict(const Module& module) {
  const NoGrad guard;
  StateDict tensors = state_dict(module);
  std::set<std::string> channels_last;
  for (const auto& [name, tensor] : module.channels_last_parameters()) channels_last.insert(name);
  for (auto& [name, tensor] : tensors) {
    if (tensor.rank() != 4 && !channels_last.contains(name)) continue;
    Axes axes = {0, -1};  // OHWI to OIHW
    for (int i = 1; i < tensor.rank() - 1; ++i) axes.push_back(i);
    tensor = permute(tensor, axes);
  }
  return tensors;
}

StateDict renamed(StateDict tensors, const std::vector<Renaming>& rules) {
  for (NamedTensor& t : tensors) {
    for (const auto& [from, to] : rules) {
      const size_t at = t.name.find(from);
      if (at != std::string::npos) t.name.replace(at, from.size(), to);
    }
  }
  return tensors;
}

LoadResult load_tensors(const SafetensorsFile& file, const StateDict& tensors, bool strict) {
  return load_from({&file}, tensors, strict, {});
}

void load_tensors(const std::list<SafetensorsFile>& files, const StateDict& tensors,
                  const std::set<std::string>& ignored) {
  std::vector<const SafetensorsFile*> all;
  for (const SafetensorsFile& file : files) all.push_back(&file);
  load_from(all, tensors, true, ignored);
}

void save_model(const std::filesystem::path& path, const Module& module, const Metadata& metadata,
                DType dtype) {
  Metadata all = metadata;
  all.emplace("format", "pt");  // Hugging Face's loaders require it
  write_safetensors(path, torch_state_dict(module), all, dtype);
}

LoadResult load_model(const std::filesystem::path& path, Module& module, bool strict) {
  return load_tensors(SafetensorsFile(path), torch_state_dict(module), strict);
}

// Tensors in files are dense; others go through a copy.
void copy_as_file(const Module& module) {
  const NoGrad guard;
  for (const NamedTensor& t : torch_state_dict(module)) contiguous(t.tensor);
}

}  // namespace rw
