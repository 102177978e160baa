// x[...] as NumPy has it: numbers, slices, None, Ellipsis, masks, and indices of other tensors.
#include <algorithm>

#include "python/door/door.h"

namespace door {

namespace {

// An index by which an axis, or several by a mask, is read out of order; or a whole axis.
struct Picked {
  std::vector<rw::Tensor> at;              // by axis, i32; undefined: the axis stays
  bool has_any = false, is_apart = false;  // apart: axes that stay lie between picked ones
  int first = -1;                          // the first picked axis
};

[[noreturn]] void index_error(const std::string& text) {
  throw nb::index_error(("[index] " + text).c_str());
}

int64_t place(int64_t index, int64_t size, int axis) {
  if (index < -size || index >= size)
    index_error(fmt::format("{} is outside of axis {} of size {}", index, axis, size));
  return index < 0 ? index + size : index;
}

// x[begin:end:step] along an axis.
rw::Tensor sliced(rw::Tensor x, int axis, nb::handle slice) {
  Py_ssize_t begin = 0, end = 0, step = 0;
  if (PySlice_Unpack(slice.ptr(), &begin, &end, &step) < 0) nb::raise_python_error();
  const int64_t size = x.size(axis);
  const Py_ssize_t count = PySlice_AdjustIndices(size, &begin, &end, step);
  if (begin == 0 && step == 1 && count == size) return x;
  if (count == 0) return rw::slice(std::move(x), axis, 0, 0);
  if (step > 0) return rw::slice(std::move(x), axis, begin, begin + (count - 1) * step + 1, step);
  const int64_t last = begin + (count - 1) * step;  // the lowest
  return rw::flip(rw::slice(std::move(x), axis, last, begin + 1, -step), {axis});
}

// An index tensor: of integers as i32, or of a mask, which picks the places where it is not 0.
std::optional<rw::Tensor> index_in(nb::handle object) {
  if (const rw::Tensor* t = tensor_in(object)) return *t;
  const bool is_list = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
  if (!is_list && PyIndex_Check(object.ptr())) {  // NumPy's numbers; its arrays refuse
    PyObject* number = PyNumber_Index(object.ptr());
    Py_XDECREF(number);
    if (number) return {};
    PyErr_Clear();
  }
  if (is_list && PySequence_Size(object.ptr()) == 0) return rw::zeros({0}, rw::DType::i32);
  rw::Tensor t;
  if (is_list) return tensor_from(object, {});
  if (read_array(object, t)) return t;
  return {};
}

// Checks the indices where they are known without a wait for the device, and counts negative ones
// from the end.
rw::Tensor normalized(const rw::Tensor& index, int64_t size, int axis, bool is_host) {
  if (is_host) {
    std::vector<int32_t> values = index.to_ints();
    for (int32_t& v : values) v = static_cast<int32_t>(place(v, size, axis));
    const rw::DeviceScope scope(index.device().shared_from_this());
    return rw::tensor(std::span<const int32_t>(values), index.shape());
  }
  const rw::Tensor from_end = index + size;
  return rw::where(index < 0, from_end, index);
}

// Applies everything but picked axes, and finds these.
rw::Tensor simple_part(rw::Tensor x, nb::handle key, Picked& picked) {
  nb::list items;
  if (PyTuple_Check(key.ptr()))
    for (nb::handle item : nb::borrow<nb::tuple>(key)) items.append(item);
  else
    items.append(key);
  int named = 0, ellipses = 0;
  std::vector<std::optional<rw::Tensor>> indices(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const nb::handle item = items[i];
    if (item.ptr() == Py_Ellipsis)
      ++ellipses;
    else if (!item.is_none() && !PyBool_Check(item.ptr()) && !PySlice_Check(item.ptr()) &&
             !PyLong_Check(item.ptr()))
      indices[i] = index_in(item);
    const bool is_mask = indices[i] && indices[i]->dtype() == rw::DType::u8;
    if (item.ptr() != Py_Ellipsis && !item.is_none() && !PyBool_Check(item.ptr()))
      named += is_mask ? indices[i]->rank() : 1;
  }
  if (ellipses > 1) index_error("only one ellipsis is possible");
  if (named > x.rank())
    index_error(fmt::format("{} has {} axes, got indices of {}", x.str(), x.rank(), named));
  bool picks = false;
  for (size_t i = 0; i < items.size(); ++i)
    picks |= indices[i].has_value() || PyBool_Check(nb::handle(items[i]).ptr());
  int axis = 0, last_picked = -2;
  picked.at.clear();
  const auto stay = [&] { picked.at.emplace_back(), ++axis; };
  const auto pick = [&](rw::Tensor index) {
    if (picked.first < 0) picked.first = axis;
    picked.is_apart |= last_picked >= 0 && last_picked != axis - 1;
    last_picked = axis;
    picked.has_any = true;
    picked.at.push_back(std::move(index));
    ++axis;
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const nb::handle item = items[i];
    if (item.ptr() == Py_Ellipsis) {
      for (int k = x.rank() - axis - named; k > 0; --k) stay();  // `named`: those still to come
    } else if (item.is_none()) {
      x = rw::unsqueeze(std::move(x), axis);
      stay();
    } else if (PyBool_Check(item.ptr())) {  // a mask of no axes
      x = rw::unsqueeze(std::move(x), axis);
      pick(item.ptr() == Py_True ? rw::zeros({1}, rw::DType::i32) : rw::zeros({0}, rw::DType::i32));
    } else if (PySlice_Check(item.ptr())) {
      x = sliced(std::move(x), axis, item);
      stay();
      --named;
    } else if (indices[i] && indices[i]->dtype() == rw::DType::u8) {
      const rw::Tensor& mask = *indices[i];
      for (int k = 0; k < mask.rank(); ++k)
        if (mask.size(k) != x.size(axis + k))
          index_error(
              fmt::format("a mask {} does not fit axis {} of {}", mask.str(), axis + k, x.str()));
      const rw::Tensor places = rw::nonzero(mask);
      if (mask.rank() == 0) {
        x = rw::unsqueeze(std::move(x), axis);
        pick(rw::zeros({places.size(0)}, rw::DType::i32));
      }
      for (int k = 0; k < mask.rank(); ++k) pick(rw::select(places, 1, k));
      named -= mask.rank();
    } else if (indices[i]) {
      const rw::Tensor& index = *indices[i];
      if (index.dtype() != rw::DType::i32)
        index_error("indices are integers or masks, got " + index.str());
      pick(normalized(index, x.size(axis), axis, !tensor_in(item)));
      --named;
    } else {
      if (!PyIndex_Check(item.ptr()))
        index_error("indices are integers, slices, None, ..., masks and arrays, got " +
                    nb::cast<std::string>(nb::repr(item)));
      const int64_t number = place(nb::cast<int64_t>(nb::int_(item)), x.size(axis), axis);
      if (picks) {  // beside arrays a number is an array without axes
        const std::array value = {number};
        pick(rw::tensor(std::span<const int64_t>(value), {}));
      } else {
        x = rw::select(std::move(x), axis, number);
      }
      --named;
    }
  }
  while (axis < x.rank()) stay();
  return x;
}

// The places of picked elements as one index into x with its picked axes first and as one.
struct Flat {
  rw::Tensor x, index;     // x: picked axes first, [rows, rest...]; index [count], i32
  rw::Shape picked, rest;  // the sizes of the indices together, and of the axes that stay
};

Flat flattened(rw::Tensor x, const Picked& picked, std::vector<int>& order) {
  rw::Shape all;
  for (const rw::Tensor& t : picked.at)
    if (t.defined()) all = rw::broadcast(all, t.shape(), "index");
  Flat flat;
  flat.picked = all;
  order.clear();
  int64_t rows = 1;
  for (size_t i = 0; i < picked.at.size(); ++i)
    if (picked.at[i].defined())
      order.push_back(static_cast<int>(i)), rows *= x.size(static_cast<int>(i));
  rw::Tensor index;
  int64_t stride = rows;
  for (const int axis : order) {
    stride = x.size(axis) == 0 ? 0 : stride / x.size(axis);
    rw::Tensor part = picked.at[static_cast<size_t>(axis)];
    if (stride != 1) part = part * stride;
    index = index.defined() ? index + part : part;
  }
  flat.index = rw::reshape(rw::expand(index, all), {all.numel()});
  std::vector<int64_t> sizes = {rows};
  for (size_t i = 0; i < picked.at.size(); ++i)
    if (!picked.at[i].defined()) {
      order.push_back(static_cast<int>(i));
      flat.rest.push_back(x.size(static_cast<int>(i)));
      sizes.push_back(x.size(static_cast<int>(i)));
    }
  flat.x =
      rw::reshape(rw::permute(std::move(x), order), rw::Shape(std::span<const int64_t>(sizes)));
  return flat;
}

rw::Shape joined(const rw::Shape& a, const rw::Shape& b) {
  rw::Shape both = a;
  for (const int64_t size : b) both.push_back(size);
  return both;
}

// Where NumPy puts the axes of the indices: at the first of them, or first if they lie apart.
rw::Axes final_order(const Picked& picked, int index_rank, int rank) {
  int before = 0;
  if (!picked.is_apart)
    for (int i = 0; i < picked.first; ++i) before += !picked.at[static_cast<size_t>(i)].defined();
  rw::Axes order;
  for (int i = 0; i < before; ++i) order.push_back(index_rank + i);
  for (int i = 0; i < index_rank; ++i) order.push_back(i);
  for (int i = index_rank + before; i < rank; ++i) order.push_back(i);
  return order;
}

rw::Tensor picked_from(rw::Tensor x, const Picked& picked) {
  std::vector<int> order;
  const Flat flat = flattened(std::move(x), picked, order);
  rw::Tensor y =
      rw::reshape(rw::index_select(flat.x, 0, flat.index), joined(flat.picked, flat.rest));
  return rw::permute(y, final_order(picked, flat.picked.rank(), y.rank()));
}

rw::Tensor get(const rw::Tensor& x, nb::handle key) {
  const rw::DeviceScope scope(x.device().shared_from_this());
  if (PyLong_Check(key.ptr()) && !PyBool_Check(key.ptr())) {  // the usual case
    if (x.rank() == 0) index_error("a tensor without axes has no places");
    return rw::select(x, 0, place(nb::cast<int64_t>(key), x.size(0), 0));
  }
  Picked picked;
  rw::Tensor part = simple_part(x, key, picked);
  return picked.has_any ? picked_from(std::move(part), picked) : part;
}

// Values for a place of this shape: x[key] = y broadcasts y, and drops first axes of size 1.
rw::Tensor fitted(rw::Tensor values, const rw::Shape& shape, rw::DType dtype) {
  while (values.rank() > shape.rank() && values.size(0) == 1) values = rw::select(values, 0, 0);
  const rw::Shape both = rw::broadcast(values.shape(), shape, "index");
  rw::check<rw::ShapeError>(both == shape, "index", "values must broadcast to {}, got {}", shape,
                            values);
  return rw::cast(rw::expand(std::move(values), shape), dtype);
}

// x with the values at the picked places: a new tensor, through which gradients pass.
rw::Tensor replaced(const rw::Tensor& x, nb::handle key, const rw::Tensor& values) {
  // Numbers of elements go through the same index, so they are where the values belong.
  const rw::Tensor numbers = rw::reshape(rw::arange(x.numel()), x.shape());
  const rw::Tensor places = get(numbers, key);
  const int64_t count = places.numel();
  rw::Tensor source = rw::reshape(fitted(values, places.shape(), x.dtype()), {count});
  rw::Tensor y = rw::index_copy(rw::reshape(x, {x.numel()}), 0, rw::reshape(places, {count}),
                                std::move(source));
  return rw::reshape(std::move(y), x.shape());
}

void set(nb::handle self, nb::handle key, nb::handle value) {
  rw::Tensor& x = *tensor_in(self);
  const rw::DeviceScope scope(x.device().shared_from_this());
  const rw::Tensor values = as_tensor(value);
  const bool records = rw::grad_enabled() && (x.requires_grad() || values.requires_grad());
  if (records) {
    rw::check<rw::AutogradError>(
        !x.is_leaf() || !x.requires_grad(), "index",
        "a leaf that requires a gradient is changed under no_grad() only, got {}", x);
    x = replaced(x, key, values);  // the handle becomes the result, as in x += y
    return;
  }
  const rw::NoGrad no_grad;
  Picked picked;
  rw::Tensor part = simple_part(x, key, picked);
  if (!picked.has_any && part.pointer() && part.impl().storage == x.impl().storage) {
    part.copy_(fitted(values, part.shape(), part.dtype()));
    return;
  }
  x.copy_(replaced(x, key, values));
}

}  // namespace

void bind_indexing(nb::class_<rw::Tensor>& tensor) {
  tensor.def("__getitem__", &get, "key"_a.none());
  tensor.def("__setitem__", &set, "key"_a.none(), "value"_a.none());
  tensor.def("__iter__", [](const rw::Tensor& t) {
    if (t.rank() == 0) throw nb::type_error("iteration over a 0-d tensor");
    nb::list parts;
    for (rw::Tensor& part : rw::unbind(t, 0)) parts.append(nb::cast(std::move(part)));
    return nb::iter(parts);
  });
  tensor.def(
      "__contains__",
      [](const rw::Tensor& t, Operand value) {
        return rw::any(value.number ? t == *value.number : t == value.tensor).item() != 0;
      },
      Release());
}

}  // namespace door
