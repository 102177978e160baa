// Methods of rw.Tensor that change shapes and dtypes.
#include <nanobind/stl/shared_ptr.h>

#include "python/door/door.h"

namespace door {

namespace {

// x.reshape(2, 3) and x.reshape((2, 3)).
Sizes spread(nb::args args) {
  Sizes sizes;
  const nb::handle all = args.size() == 1 ? nb::handle(args[0]) : nb::handle(args);
  if (!read_integers(all, sizes.values)) throw nb::type_error("sizes and axes are integers");
  return sizes;
}

}  // namespace

void bind_shaping(nb::class_<rw::Tensor>& tensor) {
  const auto def = [&](const char* name, auto f, const char* doc) {
    tensor.def(
        name,
        [f](const rw::Tensor& x, nb::args args) {
          const Sizes sizes = spread(args);
          const nb::gil_scoped_release release;
          return f(x, sizes);
        },
        doc);
  };
  const auto reshape = [](const rw::Tensor& x, const Sizes& s) {
    return rw::reshape(x, reshaped(x, s));
  };
  def("reshape", reshape,
      "A view, or a copy of a strided tensor, with other sizes, one of which may be -1.");
  def("view", reshape, "The same as reshape.");
  def(
      "expand", [](const rw::Tensor& x, const Sizes& s) { return rw::expand(x, expanded(x, s)); },
      "Broadcast to the sizes; -1 keeps one.");
  def(
      "repeat", [](const rw::Tensor& x, const Sizes& s) { return rw::repeat(x, s.values); },
      "The whole tensor so often along each axis.");
  def(
      "tile", [](const rw::Tensor& x, const Sizes& s) { return rw::tile(x, s.values); },
      "The same; axes without a count: once.");
  const auto axes = [](const Sizes& s) { return rw::Axes(s.values.begin(), s.values.end()); };
  def(
      "permute", [axes](const rw::Tensor& x, const Sizes& s) { return rw::permute(x, axes(s)); },
      "Axis i of the result is axes[i].");
  def(
      "flip", [axes](const rw::Tensor& x, const Sizes& s) { return rw::flip(x, axes(s)); },
      "Reverses the order along the axes.");
  const auto turned = [](const rw::Tensor& x) {
    rw::Axes order(static_cast<size_t>(x.rank()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = x.rank() - 1 - static_cast<int>(i);
    return rw::permute(x, order);
  };
  tensor.def_prop_ro("T", turned, "With the axes in reverse order.");
  tensor.def("t", turned);
  tensor.def_prop_ro(
      "mT", [](const rw::Tensor& x) { return rw::transpose(x, -2, -1); },
      "With the last two axes exchanged.");
  tensor.def(
      "to",
      [](const nb::object& self, nb::handle to) -> nb::object {
        rw::DType dtype{};
        if (const rw::Tensor* other = tensor_in(to))
          dtype = other->dtype();
        else if (!read_dtype(to, dtype)) {  // a device: there is one at a time
          const rw::Tensor& t = *tensor_in(self);
          std::shared_ptr<rw::Device> device;
          const std::string name = nb::cast<std::string>(nb::str(to));
          const bool is_here = nb::try_cast(to, device)
                                   ? device.get() == &t.device()
                                   : t.device().info().backend == name.substr(0, name.find(':'));
          rw::check<rw::DeviceError>(is_here, "to", "a tensor stays on its device, {}, got {}",
                                     t.device(), name);
          return self;
        }
        const nb::gil_scoped_release release;
        rw::Tensor t = rw::cast(*tensor_in(self), dtype);
        const nb::gil_scoped_acquire acquire;
        return nb::cast(std::move(t));
      },
      "to"_a, "The values in another dtype (gradients are cast back).");
  for (const auto& [name, dtype] : {std::pair{"float", rw::DType::f32},
                                    {"half", rw::DType::f16},
                                    {"bfloat16", rw::DType::bf16},
                                    {"int", rw::DType::i32},
                                    {"long", rw::DType::i32},
                                    {"bool", rw::DType::u8},
                                    {"byte", rw::DType::u8}})
    tensor.def(
        name,
        [dtype = dtype, is_bool = std::string_view(name) == "bool"](const rw::Tensor& t) {
          return is_bool ? rw::Tensor(t != 0) : rw::cast(t, dtype);
        },
        Release());
  tensor.def(
      "cpu", [](nb::object self) { return self; },
      "The tensor itself: its values are read as it is.");
}

}  // namespace door
