// rw.nn.Module: the module of C++, to which Python adds parameters, buffers and children.
#include "python/door/modules.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <set>

namespace door {

namespace {

// A module whose forward is written in Python.
class PythonModule : public rw::Module {
 public:
  NB_TRAMPOLINE(rw::Module, 1);
  rw::Tensor forward(rw::Tensor x) override { NB_OVERRIDE(forward, x); }
};

// The way to what modules register by themselves.
struct Registry : rw::Module {
  static void parameter(rw::Module& m, const std::string& name, const rw::Tensor& t) {
    (m.*static_cast<void (rw::Module::*)(std::string, const rw::Tensor&)>(
            &Registry::register_parameter))(name, t);
  }
  static void buffer(rw::Module& m, const std::string& name, const rw::Tensor& t) {
    (m.*static_cast<void (rw::Module::*)(std::string, const rw::Tensor&)>(
            &Registry::register_buffer))(name, t);
  }
  static void child(rw::Module& m, const std::string& name, rw::Module& c) {
    (m.*&Registry::register_module)(name, c);
  }
  static void drop_parameter(rw::Module& m, std::string_view name) {
    (m.*&Registry::unregister_parameter)(name);
  }
  static void drop_buffer(rw::Module& m, std::string_view name) {
    (m.*&Registry::unregister_buffer)(name);
  }
  static void drop_child(rw::Module& m, const rw::Module& c) {
    (m.*&Registry::unregister_module)(c);
  }
  // Tells whether blocks are checkpointed, and the module is one (Module::operator()).
  static bool makes_segment(rw::Module& m) {
    if (!m.is_training() || !rw::checkpoints_blocks() || rw::Tape::current()->in_segment())
      return false;
    if (!(m.*&Registry::is_child)() || !m.has_children() || (m.*&Registry::segments_itself)())
      return false;
    for (const rw::Module::Named& below : m.named_modules())
      if (below.module->has_children()) return false;
    return true;
  }
};

// Each tensor once, under its first name.
nb::list pairs_of(const std::vector<rw::NamedTensor>& tensors) {
  nb::list pairs;
  std::set<const rw::TensorImpl*> seen;
  for (const rw::NamedTensor& t : tensors)
    if (seen.insert(t.tensor.pointer().get()).second)
      pairs.append(nb::make_tuple(t.name, t.tensor));
  return pairs;
}

// An attribute that is not Python's: a parameter, a buffer or a child of a module of C++.
nb::object part_of(nb::handle self, const std::string& name) {
  rw::Module& m = *nb::cast<rw::Module*>(self);
  if (!name.starts_with("__")) {
    for (const auto& list : {m.named_parameters(), m.named_buffers()})
      for (const rw::NamedTensor& t : list)
        if (t.name == name) return nb::cast(t.tensor);
    for (const rw::Module::Named& below : m.named_modules())
      if (below.name == name)
        return nb::cast(below.module, nb::rv_policy::reference_internal, self);
  }
  throw nb::attribute_error(fmt::format("'{}' has no attribute '{}'",
                                        nb::cast<std::string>(self.type().attr("__name__")), name)
                                .c_str());
}

nb::list modules_of(nb::handle self, bool direct) {
  nb::list found;
  for (const rw::Module::Named& below : nb::cast<rw::Module*>(self)->named_modules())
    if (!direct || below.name.find('.') == std::string::npos)
      found.append(nb::make_tuple(below.name,
                                  nb::cast(below.module, nb::rv_policy::reference_internal, self)));
  return found;
}

// Fills the tensors by name, in PyTorch's layout. Returns the names that are missing and those that
// are not wanted.
std::pair<std::vector<std::string>, std::vector<std::string>> load(rw::Module& m, nb::dict state,
                                                                   bool strict) {
  const rw::StateDict wanted = rw::torch_state_dict(m);
  std::vector<std::string> missing, unexpected;
  std::set<std::string> names;
  std::vector<std::pair<rw::Tensor, rw::Tensor>> found;
  for (const rw::NamedTensor& t : wanted) {
    names.insert(t.name);
    if (!state.contains(t.name.c_str())) {
      missing.push_back(t.name);
      continue;
    }
    rw::Tensor values = as_tensor(state[t.name.c_str()]).detach();
    rw::check<rw::ShapeError>(values.shape() == t.tensor.shape(), "load_state_dict",
                              "'{}' must have the shape {}, got {}", t.name, t.tensor.shape(),
                              values);
    found.emplace_back(t.tensor, std::move(values));
  }
  for (const auto& [key, value] : state) {
    const std::string name = nb::cast<std::string>(key);
    if (!names.contains(name) && !name.ends_with("num_batches_tracked")) unexpected.push_back(name);
  }
  rw::check(!strict || (missing.empty() && unexpected.empty()), "load_state_dict",
            "names must agree, got {} missing ({}) and {} unexpected ({})", missing.size(),
            fmt::join(missing, ", "), unexpected.size(), fmt::join(unexpected, ", "));
  const rw::NoGrad no_grad;
  for (auto& [target, values] : found) target.copy_(values);
  return {missing, unexpected};
}

void bind_registration(nb::class_<rw::Module, PythonModule>& c) {
  c.def("_register_parameter", &Registry::parameter);
  c.def("_register_buffer", &Registry::buffer);
  c.def("_register_module", &Registry::child);
  c.def("_drop_parameter", &Registry::drop_parameter);
  c.def("_drop_buffer", &Registry::drop_buffer);
  c.def("_drop_module", &Registry::drop_child);
  c.def("_makes_segment", &Registry::makes_segment);
  c.def("__getattr__", &part_of);
}

void bind_lists(nb::class_<rw::Module, PythonModule>& c) {
  c.def(
      "named_parameters", [](const rw::Module& m) { return pairs_of(m.named_parameters()); },
      "Names and parameters: own ones first, then the children's.");
  c.def(
      "parameters",
      [](const rw::Module& m) {
        nb::list tensors;
        for (nb::handle pair : pairs_of(m.named_parameters())) tensors.append(pair[1]);
        return tensors;
      },
      "The parameters without names, for optimizers.");
  c.def(
      "named_buffers", [](const rw::Module& m) { return pairs_of(m.named_buffers()); },
      "Tensors that are saved and not trained.");
  c.def("named_children", [](nb::handle self) { return modules_of(self, true); });
  c.def(
      "named_modules", [](nb::handle self) { return modules_of(self, false); },
      "The modules below this one.");
  c.def("parameter_count", &rw::Module::parameter_count, "Elements of all parameters.");
  c.def(
      "state_dict",
      [](const rw::Module& m) {
        nb::dict state;
        for (const rw::NamedTensor& t : rw::torch_state_dict(m))
          state[t.name.c_str()] = t.tensor.detach();
        return state;
      },
      "Parameters and buffers under PyTorch's names and in its layout: views of the module's.");
  c.def("load_state_dict", &load, "state_dict"_a, "strict"_a = true,
        "Fills parameters and buffers from tensors or arrays under PyTorch's names and in its "
        "layout.");
}

void bind_states(nb::class_<rw::Module, PythonModule>& c) {
  const auto self = nb::rv_policy::none;
  c.def(
      "train",
      [](nb::object m, bool mode) {
        nb::cast<rw::Module*>(m)->train(mode);
        return m;
      },
      "mode"_a = true, self);
  c.def(
      "eval",
      [](nb::object m) {
        nb::cast<rw::Module*>(m)->eval();
        return m;
      },
      self, "For evaluation: no dropout, running statistics.");
  c.def_prop_ro("training", &rw::Module::is_training);
  c.def(
      "requires_grad_",
      [](nb::object m, bool on) {
        nb::cast<rw::Module*>(m)->requires_grad_(on);
        return m;
      },
      "requires_grad"_a = true, self);
  const auto to = [](const nb::object& m, rw::DType dtype) {
    nb::cast<rw::Module*>(m)->to(dtype);
    return m;
  };
  c.def(
      "to", [to](nb::object m, DTypeGiven dtype) { return to(m, dtype); }, "dtype"_a, self,
      "Changes the parameters' dtype in place; buffers stay f32. Before an optimizer is made.");
  c.def(
      "half", [to](nb::object m) { return to(m, rw::DType::f16); }, self);
  c.def(
      "bfloat16", [to](nb::object m) { return to(m, rw::DType::bf16); }, self);
  c.def(
      "float", [to](nb::object m) { return to(m, rw::DType::f32); }, self);
  c.def("zero_grad", [](const rw::Module& m) {
    for (rw::Tensor& p : m.parameters()) p.set_grad({});
  });
  c.def("copy_state", &rw::Module::copy_state, "other"_a,
        "Overwrites parameters and buffers with those of the same names in another module.");
  c.def("set_checkpoint", &rw::Module::set_checkpoint, "every"_a,
        "Makes models and stacks of layers recompute their activations, in segments of so many "
        "layers; 0 keeps them.");
}

}  // namespace

namespace {

struct NamedActivation {
  const char* name;
  rw::Tensor (*function)(rw::Tensor);
};
constexpr NamedActivation activations[] = {{"relu", rw::relu},
                                           {"gelu", rw::gelu},
                                           {"gelu_tanh", rw::gelu_tanh},
                                           {"silu", rw::silu},
                                           {"tanh", rw::tanh}};

}  // namespace

bool read_activation(nb::handle object, ActivationGiven& into) noexcept {
  if (!PyUnicode_Check(object.ptr())) return false;
  const std::string_view name = PyUnicode_AsUTF8(object.ptr());
  for (const NamedActivation& a : activations)
    if (name == a.name) return into.function = a.function, true;
  return false;
}

const char* name_of(const ActivationGiven& activation) {
  for (const NamedActivation& a : activations)
    if (a.function == activation.function) return a.name;
  return "";
}

nb::dict made_with(nb::handle module) {
  const auto dict = nb::steal<nb::dict>(PyObject_GenericGetDict(module.ptr(), nullptr));
  if (!dict.contains("_made_with")) dict["_made_with"] = nb::dict();
  return nb::borrow<nb::dict>(dict["_made_with"]);
}

void bind_modules(nb::module_& m) {
  nb::class_<rw::Module, PythonModule> c(
      m, "Module", nb::dynamic_attr(), nb::is_weak_referenceable(),
      "A piece of a model with named parameters, buffers and children.");
  c.def(nb::init<>());
  c.def(
      "forward", [](rw::Module& self, Given x) { return self.forward(std::move(x.tensor)); }, "x"_a,
      Release());
  bind_registration(c);
  bind_lists(c);
  bind_states(c);
  m.def("_new_parameter", [](nb::handle data, std::optional<DTypeGiven> dtype, bool requires_grad) {
    ensure_device();
    const rw::PurposeScope purpose(rw::Purpose::parameter);
    const rw::PlaceScope place(rw::init::weight_place());
    rw::Tensor t = tensor_from(data, dtype ? std::optional(dtype->dtype) : std::nullopt);
    if (requires_grad) t.set_requires_grad();
    return t;
  });
  const auto fill = [&](const char* name, auto init, const char* scale, float usual) {
    m.def(
        name, [init](const rw::Tensor& weight, float gain) { init(weight, gain); }, "weight"_a,
        nb::arg(scale) = usual, Release());
  };
  const auto in = rw::init::FanMode::in;
  fill(
      "_kaiming_uniform_", [=](auto& w, float g) { rw::init::kaiming_uniform_(w, in, g); }, "gain",
      rw::init::relu_gain);
  fill(
      "_kaiming_normal_", [=](auto& w, float g) { rw::init::kaiming_normal_(w, in, g); }, "gain",
      rw::init::relu_gain);
  fill(
      "_xavier_uniform_", [](auto& w, float g) { rw::init::xavier_uniform_(w, g); }, "gain", 1);
  fill(
      "_xavier_normal_", [](auto& w, float g) { rw::init::xavier_normal_(w, g); }, "gain", 1);
  bind_listed_modules(m);
  bind_models(m);
}

}  // namespace door
