#include "nn/module.h"

#include <algorithm>

#include "core/autograd/checkpoint.h"
#include "core/base/thread_state.h"
#include "nn/init.h"
#include "ops/ops.h"

namespace rw {

namespace {

// The beginning of the names of a child that is registered under `name`.
std::string beginning_of(const std::string& name) {
  return name.empty() || name.ends_with('_') ? name : name + ".";
}

}  // namespace

void check_positive(const char* module,
                    std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (const auto& [what, size] : sizes)
    check(size > 0, module, "{} must be positive, got {}", what, size);
}

Module::Module() : checkpoint_every_(checkpoints_blocks()) {}

Tensor Module::forward(Tensor) {
  fail("forward", "this module does not take one tensor; call the forward of its own class");
}

Tensor Module::operator()(Tensor x) {
  const CheckpointScope segment(training_ && is_block() && checkpoints_blocks() &&
                                !Tape::current()->in_segment());
  return forward(std::move(x));
}

bool Module::has_children() const {
  return std::ranges::any_of(children_, [](const auto& child) { return !child.first.empty(); });
}

bool Module::is_block() const {
  return is_child_ && has_children() && !segments_itself() &&
         std::none_of(children_.begin(), children_.end(),
                      [](const auto& child) { return child.second->has_children(); });
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> found;
  collect(&Module::parameters_, "", found);
  return found;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> tensors;
  for (NamedTensor& p : named_parameters()) tensors.push_back(std::move(p.tensor));
  return tensors;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> found;
  collect(&Module::buffers_, "", found);
  return found;
}

std::vector<NamedTensor> Module::channels_last_parameters() const {
  std::vector<NamedTensor> found;
  collect(&Module::channels_last_, "", found);
  return found;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

std::vector<Module::Named> Module::named_modules() const {
  std::vector<Named> found;
  collect_modules("", found);
  return found;
}

void Module::apply(const std::function<void(Module&)>& body) {
  for (const auto& [name, child] : children_) child->apply(body);
  body(*this);
}

void Module::requires_grad_(bool on) {
  for (Tensor& parameter : parameters()) parameter.set_requires_grad(on);
}

void Module::to(DType matrices, DType vectors) {
  for (const DType dtype : {matrices, vectors})
    check<DTypeError>(is_float(dtype), "to", "parameters are float, got {}", name(dtype));
  const std::vector<NamedTensor> all = named_parameters();
  for (const auto& [name, p] : all)
    check<AutogradError>(!p.impl().is_optimized, "to",
                         "'{}' belongs to an optimizer; make that afterwards", name);
  const PurposeScope purpose(Purpose::parameter);
  for (const auto& [name, p] : all) {
    const DType dtype = p.rank() > 1 ? matrices : vectors;
    if (p.dtype() == dtype) continue;
    const Tensor other = copy_of(p, dtype);
    TensorImpl& impl = p.impl();
    impl.storage = other.impl().storage;
    impl.strides = other.strides();
    impl.offset = 0;
    impl.dtype = dtype;
    impl.id = other.impl().id;  // another value
  }
}

void Module::copy_state(const Module& other) {
  const auto all = [](const Module& module) {
    std::vector<NamedTensor> found = module.named_parameters();
    for (NamedTensor& buffer : module.named_buffers()) found.push_back(std::move(buffer));
    return found;
  };
  const std::vector<NamedTensor> to = all(*this), from = all(other);
  check(to.size() == from.size(), "copy_state", "both must have the same tensors, got {} and {}",
        to.size(), from.size());
  for (size_t i = 0; i < to.size(); ++i) {
    check(to[i].name == from[i].name, "copy_state",
          "both must have the same tensors, got '{}' and '{}'", to[i].name, from[i].name);
    check<ShapeError>(to[i].tensor.shape() == from[i].tensor.shape(), "copy_state",
                      "'{}' must have one shape, got {} and {}", to[i].name, to[i].tensor,
                      from[i].tensor);
  }
  for (size_t i = 0; i < to.size(); ++i) Tensor(to[i].tensor).copy_(from[i].tensor);
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::set_checkpoint(int every) {
  check(every >= 0, "set_checkpoint", "a segment spans one layer or more, got {}", every);
  checkpoint_every_ = every;
  for (const auto& [name, child] : children_) child->set_checkpoint(every);
}

Tensor Module::register_parameter(std::string name, const Shape& shape, DType dtype) {
  const PurposeScope scope(Purpose::parameter);
  const PlaceScope place(init::weight_place());
  Tensor t = empty(shape, dtype);
  t.set_requires_grad();
  parameters_.push_back({std::move(name), t});
  return t;
}

void Module::register_parameter(std::string name, const Tensor& parameter) {
  check<DTypeError>(is_float(parameter.dtype()), "register_parameter",
                    "parameters are float, got {}", parameter);
  parameters_.push_back({std::move(name), parameter});
}

Tensor Module::register_channels_last(const std::string& name, const Shape& shape) {
  Tensor t = register_parameter(name, shape);
  channels_last_.push_back({name, t});
  return t;
}

Tensor Module::register_buffer(std::string name, const Shape& shape, float value) {
  const PurposeScope scope(Purpose::parameter);
  Tensor t = full(shape, value);
  buffers_.push_back({std::move(name), t});
  return t;
}

void Module::register_buffer(std::string name, const Tensor& buffer) {
  buffers_.push_back({std::move(name), buffer});
}

void Module::register_module(std::string name, Module& child) {
  children_.emplace_back(std::move(name), &child);
  child.is_child_ = true;
}

void Module::unregister_module(const Module& child) {
  std::erase_if(children_, [&](const auto& c) { return c.second == &child; });
}

std::unique_ptr<Module> Module::exchange_part(std::unique_ptr<Module>& part,
                                              std::unique_ptr<Module> with) {
  if (part) unregister_module(*part);
  std::swap(part, with);
  if (part) {
    register_module("", *part);
    part->train(training_);
  }
  return with;
}

void Module::unregister_parameter(std::string_view name) {
  std::erase_if(parameters_, [&](const NamedTensor& p) { return p.name == name; });
}

void Module::unregister_buffer(std::string_view name) {
  std::erase_if(buffers_, [&](const NamedTensor& b) { return b.name == name; });
}

void Module::collect(Member member, const std::string& prefix,
                     std::vector<NamedTensor>& found) const {
  for (const NamedTensor& own : this->*member) {
    found.push_back({prefix + own.name, own.tensor});
    std::string& known = own.tensor.impl().name;  // another thread may be reading it
    if (known != found.back().name) known = found.back().name;
  }
  for (const auto& [name, child] : children_)
    child->collect(member, prefix + beginning_of(name), found);
}

void Module::collect_modules(const std::string& prefix, std::vector<Named>& found) const {
  for (const auto& [name, child] : children_) {
    const std::string all = prefix + beginning_of(name);  // ends with a dot or an underscore
    found.push_back({all.substr(0, all.empty() ? 0 : all.size() - 1), child});
    child->collect_modules(all, found);
  }
}

}  // namespace rw
