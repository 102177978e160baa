// Tensors and models in files: safetensors, GGUF, .npy; adapters.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>

#include "python/door/modules.h"

namespace door {

namespace {

// The dtype that holds the elements of a type that safetensors names.
rw::DType dtype_for(const std::string& stored) {
  using enum rw::DType;
  for (const rw::DType dtype : {f32, f16, bf16, i32, u8})
    if (stored == rw::stored_name(dtype)) return dtype;
  return stored == "BOOL" ? u8 : stored.starts_with('F') ? f32 : i32;
}

nb::dict load_safetensors(const std::filesystem::path& path) {
  ensure_device();
  std::vector<rw::NamedTensor> found;
  {
    const nb::gil_scoped_release release;
    const rw::SafetensorsFile file(path);
    for (const auto& [name, stored] : file.tensors()) {
      rw::Tensor t = rw::empty(stored.shape, dtype_for(stored.dtype));
      file.read(name, t);
      found.push_back({name, std::move(t)});
    }
  }
  nb::dict tensors;
  for (const rw::NamedTensor& t : found) tensors[t.name.c_str()] = t.tensor;
  return tensors;
}

void save_safetensors(const std::filesystem::path& path, nb::dict tensors,
                      const rw::Metadata& metadata) {
  std::vector<rw::NamedTensor> named;
  for (const auto& [name, value] : tensors)
    named.push_back({nb::cast<std::string>(name), as_tensor(value)});
  const nb::gil_scoped_release release;
  rw::write_safetensors(path, named, metadata);
}

nb::object plain(const rw::GgufValue& value);
nb::object plain(const rw::GgufList& list) {
  return std::visit(
      [](const auto& l) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(l)>, std::monostate>)
          return nb::none();
        else
          return nb::cast(l);
      },
      list);
}
nb::object plain(const rw::GgufValue& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, rw::GgufList>)
          return plain(v);
        else
          return nb::cast(v);
      },
      value);
}

void bind_gguf(nb::module_& m) {
  nb::class_<rw::GgufFile>(m, "GgufFile", "An open GGUF file.")
      .def(
          "__init__",
          [](rw::GgufFile* self, const std::filesystem::path& path) {
            new (self) rw::GgufFile(path);
          },
          "path"_a)
      .def_prop_ro("metadata",
                   [](const rw::GgufFile& f) {
                     nb::dict d;
                     for (const auto& [key, value] : f.metadata()) d[key.c_str()] = plain(value);
                     return d;
                   })
      .def("keys",
           [](const rw::GgufFile& f) {
             nb::list names;
             for (const auto& [name, t] : f.tensors()) names.append(name);
             return names;
           })
      .def("__len__", [](const rw::GgufFile& f) { return f.tensors().size(); })
      .def("__contains__", [](const rw::GgufFile& f,
                              const std::string& name) { return f.tensors().contains(name); })
      .def(
          "read",
          [](const rw::GgufFile& f, const std::string& name, DTypeGiven dtype) {
            ensure_device();
            const auto found = f.tensors().find(name);
            rw::check<rw::FileError>(found != f.tensors().end(), "gguf", "there is no tensor '{}'",
                                     name);
            rw::Tensor t = rw::empty(found->second.shape, dtype);
            f.read(name, t);
            return t;
          },
          "name"_a, "dtype"_a = rw::DType::f32, Release(),
          "A tensor, of which quantised types become floats.")
      .def("__getitem__",
           [](nb::object self, const std::string& name) { return self.attr("read")(name); });
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("load_safetensors", &load_safetensors, "path"_a,
        "All tensors of a safetensors file, by name.");
  m.def("save_safetensors", &save_safetensors, "path"_a, "tensors"_a, "metadata"_a = rw::Metadata(),
        "Writes tensors or arrays by name, whole or not at all.");
  m.def(
      "save_model",
      [](const std::filesystem::path& path, const rw::Module& model, const rw::Metadata& metadata,
         DTypeGiven dtype) { rw::save_model(path, model, metadata, dtype); },
      "path"_a, "model"_a, "metadata"_a = rw::Metadata(), "dtype"_a = rw::DType::f32, Release(),
      "A safetensors file with PyTorch's names and layout.");
  m.def(
      "load_model",
      [](const std::filesystem::path& path, rw::Module& model, bool strict) {
        const rw::LoadResult r = rw::load_model(path, model, strict);
        return std::pair(r.missing, r.unexpected);
      },
      "path"_a, "model"_a, "strict"_a = true, Release(),
      "Fills a model; returns the names that are missing and those that are not wanted.");
  bind_gguf(m);
}

}  // namespace door
