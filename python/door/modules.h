// Everything that the bindings of modules share: those by hand and those made of the list.
#pragma once

#include <nanobind/trampoline.h>

#include "door.h"

namespace door {

// The keys that queries look at, by keywords.
inline rw::Attend attend(bool causal, Maybe mask, Maybe lengths) {
  return {.causal = causal, .mask = std::move(mask.tensor), .lengths = std::move(lengths.tensor)};
}

// An activation by its name.
struct ActivationGiven {
  rw::Tensor (*function)(rw::Tensor) = rw::relu;
};
bool read_activation(nb::handle object, ActivationGiven& into) noexcept;
const char* name_of(const ActivationGiven& activation);

// Parameters: tensors, or groups of them as dictionaries with "params", "lr" or "lr_scale", and
// "weight_decay".
struct GroupsGiven {
  std::vector<rw::ParameterGroup> groups;
  std::vector<std::optional<float>> rates = {};  // "lr", by group
  // The groups of an optimizer with this learning rate.
  std::vector<rw::ParameterGroup> at(float lr) &&;
};
bool read_groups(nb::handle object, GroupsGiven& into);

// Notes in a module how it was made, for its text and for pickle.
nb::dict made_with(nb::handle module);
inline void remember_nothing(nb::handle module) {
  made_with(module);
}
template <class T>
void remember(nb::handle module, const char* name, const T& value) {
  if constexpr (std::is_same_v<T, ActivationGiven>)
    made_with(module)[name] = name_of(value);
  else if constexpr (std::is_same_v<T, rw::Size2d>)
    made_with(module)[name] = nb::make_tuple(value.h, value.w);
  else if constexpr (std::is_same_v<T, rw::Size3d>)
    made_with(module)[name] = nb::make_tuple(value.d, value.h, value.w);
  else if constexpr (std::is_same_v<T, Sizes>)
    made_with(module)[name] = value.values;
  else if constexpr (requires { value.has_value(); })
    value ? remember(module, name, *value) : void(made_with(module)[name] = nb::none());
  else
    made_with(module)[name] = value;
}

// Takes an optimizer out of its object, which cannot be used from then on.
rw::Optimizer&& take_optimizer(nb::handle object);

// Methods beside the usual forward(x).
void extend(nb::class_<rw::LSTM, rw::Module>& c);
void extend(nb::class_<rw::GRU, rw::Module>& c);
void extend(nb::class_<rw::MultiheadAttention, rw::Module>& c);
void extend(nb::class_<rw::TransformerEncoderLayer, rw::Module>& c);
void extend(nb::class_<rw::TransformerEncoder, rw::Module>& c);
void extend(nb::class_<rw::TransformerDecoderLayer, rw::Module>& c);
void extend(nb::class_<rw::TransformerDecoder, rw::Module>& c);
void extend(nb::class_<rw::Transformer, rw::Module>& c);
void extend(nb::class_<rw::BertAttention, rw::Module>& c);
void extend(nb::class_<rw::BertLayer, rw::Module>& c);

// Reads the fields of a configuration from keywords, and refuses others at the end.
class Fields {
 public:
  Fields(const char* of, const nb::kwargs& given) : of_(of), given_(given) {}
  template <class T>
  Fields& operator()(const char* name, T& into) {
    names_ += names_.empty() ? name : std::string(", ") + name;
    if (!given_.contains(name)) return *this;
    ++known_;
    if (!nb::try_cast(nb::object(given_[name]), into))
      throw nb::type_error(fmt::format("[{}] {} is of another type", of_, name).c_str());
    return *this;
  }
  void end() const {
    rw::check(known_ == given_.size(), of_, "its sizes are {}, got others{}", names_, "");
  }

 private:
  const char* of_;
  const nb::kwargs& given_;
  size_t known_ = 0;
  std::string names_ = {};
};

void bind_listed_modules(nb::module_& m);     // generated
void bind_listed_optimizers(nb::module_& m);  // generated
void bind_models(nb::module_& m);
void bind_bert(nb::module_& m);
void bind_speech(nb::module_& m);
void bind_decoder(nb::module_& m);

}  // namespace door

namespace nanobind::detail {

template <>
struct type_caster<door::ActivationGiven> {
  NB_TYPE_CASTER(door::ActivationGiven, const_name("str"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    return door::read_activation(object, value);
  }
};

template <>
struct type_caster<door::GroupsGiven> {
  NB_TYPE_CASTER(door::GroupsGiven, const_name("collections.abc.Iterable"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    try {
      return door::read_groups(object, value);
    } catch (...) {
      PyErr_Clear();
      return false;
    }
  }
};

}  // namespace nanobind::detail
