// rw.Tensor: what it says about itself, operators, and the methods that are not ops of the list.
#include <nanobind/stl/shared_ptr.h>

#include "python/door/results.h"

namespace door {

PyObject *sort_result = nullptr, *batch_norm_result = nullptr, *lstm_result = nullptr;

namespace {

nb::tuple tuple_of(const rw::Shape& shape) {
  nb::tuple t = nb::steal<nb::tuple>(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i)
    PyTuple_SET_ITEM(t.ptr(), i, PyLong_FromLongLong(shape[i]));
  return t;
}

bool is_whole(const rw::Tensor& t) {
  return !rw::is_float(t.dtype());
}

// The only element, as Python's number of its kind.
nb::object item(const rw::Tensor& t) {
  if (t.numel() == 1 && is_whole(t)) {
    std::vector<int32_t> values;
    {
      const nb::gil_scoped_release release;
      values = t.to_ints();
    }
    return nb::int_(values[0]);
  }
  float value = 0;
  {
    const nb::gil_scoped_release release;
    value = t.item();
  }
  return nb::float_(value);
}

void bind_facts(nb::class_<rw::Tensor>& tensor) {
  tensor.def_prop_ro(
      "shape", [](const rw::Tensor& t) { return tuple_of(t.shape()); }, "The sizes by axis.");
  tensor.def_prop_ro("dtype", &rw::Tensor::dtype);
  tensor.def_prop_ro("device", [](const rw::Tensor& t) { return t.device().shared_from_this(); });
  tensor.def_prop_ro("ndim", &rw::Tensor::rank);
  tensor.def("dim", &rw::Tensor::rank);
  tensor.def("numel", &rw::Tensor::numel, "The number of elements.");
  tensor.def("nelement", &rw::Tensor::numel);
  tensor.def("element_size", [](const rw::Tensor& t) { return rw::size_of(t.dtype()); });
  tensor.def_prop_ro("nbytes", &rw::Tensor::bytes);
  tensor.def(
      "size",
      [](const rw::Tensor& t, nb::handle axis) -> nb::object {
        if (axis.is_none()) return tuple_of(t.shape());
        return nb::int_(t.size(nb::cast<int>(axis)));
      },
      "axis"_a.none() = nb::none());
  tensor.def(
      "stride",
      [](const rw::Tensor& t, nb::handle axis) -> nb::object {
        if (axis.is_none()) return tuple_of(t.strides());
        return nb::int_(t.strides().at(nb::cast<int>(axis)));
      },
      "axis"_a.none() = nb::none());
  tensor.def_prop_ro(
      "strides", [](const rw::Tensor& t) { return tuple_of(t.strides()); }, "In elements.");
  tensor.def("is_contiguous", &rw::Tensor::is_contiguous);
  tensor.def("is_floating_point", [](const rw::Tensor& t) { return rw::is_float(t.dtype()); });
  tensor.def("__len__", [](const rw::Tensor& t) {
    if (t.rank() == 0) throw nb::type_error("len() of a 0-d tensor");
    return t.size(0);
  });
  tensor.def("__repr__", [](const rw::Tensor& t) {
    std::string text;
    {
      const nb::gil_scoped_release release;
      text = rw::to_string(t);
    }
    if (t.requires_grad() && text.ends_with(')'))
      text.insert(text.size() - 1, ", requires_grad=True");
    return text;
  });
  tensor.def("__format__", [](nb::handle self, const std::string& how) {
    const rw::Tensor& t = *tensor_in(self);
    return t.rank() == 0 ? nb::object(item(t).attr("__format__")(how)) : nb::object(nb::str(self));
  });
  tensor.def("__hash__", [](const rw::Tensor& t) {
    return reinterpret_cast<intptr_t>(t.pointer().get()) >> 4;
  });
  tensor.def("item", &item, "The only element, as a number. Waits for the device.");
  tensor.def("__float__",
             [](const rw::Tensor& t) { return nb::float_(nb::cast<double>(item(t))); });
  tensor.def("__int__", [](const rw::Tensor& t) { return nb::int_(item(t)); });
  tensor.def("__index__", [](const rw::Tensor& t) {
    if (!is_whole(t) || t.rank() != 0)
      throw nb::type_error("only a 0-d tensor of integers is an index");
    return item(t);
  });
  tensor.def("__complex__", [](const rw::Tensor& t) {
    return nb::steal(PyComplex_FromDoubles(nb::cast<double>(item(t)), 0));
  });
  tensor.def("__bool__", [](const rw::Tensor& t) {
    rw::check(t.numel() == 1, "bool",
              "the truth of a tensor is that of its only element, got {}; use any() or all()", t);
    return nb::cast<double>(item(t)) != 0;
  });
}

rw::Tensor clone(const rw::Tensor& t) {
  if (t.requires_grad() && rw::grad_enabled()) return rw::affine(t, 1, 0);
  return rw::copy_of(t, t.dtype());
}

void bind_values(nb::class_<rw::Tensor>& tensor) {
  tensor.def("clone", &clone, Release(), "A copy, through which gradients pass.");
  tensor.def(
      "copy_",
      [](nb::object self, nb::handle source) {
        const rw::Tensor values = as_tensor(source);
        const nb::gil_scoped_release release;
        rw::Tensor target = *tensor_in(self);
        target.copy_(values.shape() == target.shape()
                         ? values
                         : rw::expand(values.detach(), target.shape()));
        const nb::gil_scoped_acquire acquire;
        return self;
      },
      "source"_a, "Overwrites the values, without a record.");
  const auto fill = [](const nb::object& self, float value) {
    const nb::gil_scoped_release release;
    rw::Tensor target = *tensor_in(self);
    target.copy_(
        rw::full(target.shape(), value, target.dtype(), target.device().shared_from_this()));
  };
  tensor.def(
      "fill_",
      [fill](nb::object self, float value) {
        fill(self, value);
        return self;
      },
      "value"_a);
  tensor.def("zero_", [fill](nb::object self) {
    fill(self, 0);
    return self;
  });
  const auto randomise = [&](const char* name, const char* first, const char* second, auto make) {
    tensor.def(
        name,
        [make](nb::object self, float a, float b) {
          const nb::gil_scoped_release release;
          const rw::NoGrad no_grad;
          rw::Tensor target = *tensor_in(self);
          target.copy_(make(target.shape(), a, b));
          const nb::gil_scoped_acquire acquire;
          return self;
        },
        nb::arg(first) = 0, nb::arg(second) = 1);
  };
  randomise("normal_", "mean", "std",
            [](const rw::Shape& s, float mean, float std) { return rw::randn(s, mean, std); });
  randomise("uniform_", "low", "high",
            [](const rw::Shape& s, float low, float high) { return rw::rand(s, low, high); });
  tensor.def("__reduce__", [](nb::handle self) {
    const rw::Tensor& t = *tensor_in(self);
    const nb::object rebuild = nb::module_::import_("rewind").attr("_rebuild");
    return nb::make_tuple(
        rebuild, nb::make_tuple(self.type(), self.attr("numpy")(), std::string(rw::name(t.dtype())),
                                t.requires_grad()));
  });
  tensor.def(
      "__deepcopy__",
      [](nb::handle self, nb::handle) {
        const rw::Tensor& t = *tensor_in(self);
        rw::check<rw::AutogradError>(
            t.is_leaf(), "deepcopy",
            "only leaves are copied with what they are made of, got {}; detach() it", t);
        rw::Tensor copy = rw::copy_of(t, t.dtype());
        if (t.requires_grad()) copy.set_requires_grad();
        return self.type()(copy);
      },
      "memo"_a.none() = nb::none());
}

}  // namespace

nb::object object_of(rw::Tensor t) {
  return t.defined() ? nb::cast(std::move(t)) : nb::none();
}

nb::object make_named_tuple(const char* name, std::initializer_list<const char*> fields) {
  nb::list names;
  for (const char* field : fields) names.append(field);
  nb::object type = nb::module_::import_("collections").attr("namedtuple")(name, names);
  type.attr("__module__") = "rewind";
  return type;
}

nb::object named_tuple(nb::handle type, std::initializer_list<nb::object> values) {
  nb::list list;
  for (const nb::object& value : values) list.append(value);
  return type(*list);
}

void bind_tensor(nb::module_& m) {
  nb::class_<rw::Tensor> tensor(
      m, "Tensor", nb::is_weak_referenceable(),
      "Values on a device, with their place on the tape. Copies of the handle share the values.");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  sort_result = make_named_tuple("SortResult", {"values", "indices"}).release().ptr();
  batch_norm_result =
      make_named_tuple("BatchNormResult", {"y", "mean", "var", "rows"}).release().ptr();
  lstm_result = make_named_tuple("LstmResult", {"y", "c"}).release().ptr();
  m.attr("SortResult") = nb::borrow(sort_result);
  m.attr("BatchNormResult") = nb::borrow(batch_norm_result);
  m.attr("LstmResult") = nb::borrow(lstm_result);
  bind_facts(tensor);
  bind_operators(tensor);
  bind_shaping(tensor);
  bind_values(tensor);
  bind_indexing(tensor);
  bind_arrays(m, tensor);
  bind_autograd(m, tensor);
  bind_ops(m, tensor);
  m.def(
      "arange",
      [](int64_t first, std::optional<int64_t> end, int64_t step) {
        ensure_device();
        return end ? rw::arange(first, *end, step) : rw::arange(0, first, step);
      },
      "start"_a, "end"_a.none() = nb::none(), "step"_a = 1, Release(),
      "start, start + step, ... below end, as i32; arange(n) counts from 0.");
  m.def(
      "full",
      [](Sizes shape, float value, DTypeGiven dtype) {
        ensure_device();
        return rw::full(shape, value, dtype);
      },
      "shape"_a, "value"_a, "dtype"_a = rw::DType::f32, Release());
  m.def(
      "empty",
      [](Sizes shape, DTypeGiven dtype) {
        ensure_device();
        return rw::empty(shape, dtype);
      },
      "shape"_a, "dtype"_a = rw::DType::f32, Release(), "With undefined values.");
}

}  // namespace door
