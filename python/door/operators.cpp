// Operators of rw.Tensor, as Python spells them.
#include "python/door/door.h"

namespace door {

namespace {

bool is_whole(const rw::Tensor& t) {
  return !rw::is_float(t.dtype());
}

rw::Tensor truediv(Operand a, Operand b) {
  check_one(a, b);
  const auto as_float = [](Operand& o) {
    if (!o.number && is_whole(o.tensor)) o.tensor = rw::cast(std::move(o.tensor), rw::DType::f32);
    if (o.number) o.number->is_whole = false;
  };
  const bool is_whole_pair = (a.number ? a.number->is_whole : is_whole(a.tensor)) &&
                             (b.number ? b.number->is_whole : is_whole(b.tensor));
  if (is_whole_pair) as_float(a), as_float(b);
  return div(std::move(a), std::move(b));
}

rw::Tensor floordiv(Operand a, Operand b) {
  beside(a, b);
  if (!is_whole(a.tensor) || !is_whole(b.tensor)) return rw::floor(a.tensor / b.tensor);
  return (a.tensor - rw::remainder(a.tensor, b.tensor)) / b.tensor;  // exact, rounded down
}

// Masks are u8: & and | and ^ and ~ are those of truth values.
using Pair = rw::Tensor (*)(rw::Tensor, rw::Tensor);
template <Pair f>
rw::Tensor logical(Operand a, Operand b) {
  beside(a, b);
  for (const rw::Tensor* t : {&a.tensor, &b.tensor})
    rw::check<rw::DTypeError>(t->dtype() == rw::DType::u8, "logical",
                              "&, |, ^ and ~ are of masks (u8), got {}", *t);
  return f(std::move(a.tensor), std::move(b.tensor));
}

template <Pair f>
rw::Tensor pair(Operand a, Operand b) {
  beside(a, b);
  return f(std::move(a.tensor), std::move(b.tensor));
}

// f of two tensors, or of a tensor and a number on either side.
template <class F>
rw::Tensor arithmetic(Operand a, Operand b, F f) {
  check_one(a, b);
  if (a.number) return f(*a.number, std::move(b.tensor));
  if (b.number) return f(std::move(a.tensor), *b.number);
  return f(std::move(a.tensor), std::move(b.tensor));
}

}  // namespace

rw::Tensor add(Operand a, Operand b) {
  return arithmetic(std::move(a), std::move(b), [](auto x, auto y) { return x + y; });
}
rw::Tensor sub(Operand a, Operand b) {
  return arithmetic(std::move(a), std::move(b), [](auto x, auto y) { return x - y; });
}
rw::Tensor mul(Operand a, Operand b) {
  return arithmetic(std::move(a), std::move(b), [](auto x, auto y) { return x * y; });
}
rw::Tensor div(Operand a, Operand b) {
  return arithmetic(std::move(a), std::move(b), [](auto x, auto y) { return x / y; });
}
rw::Tensor pow(Operand a, Operand b) {
  check_one(a, b);
  if (b.number) return rw::pow(std::move(a.tensor), static_cast<float>(b.number->value));
  if (a.number) return rw::pow(static_cast<float>(a.number->value), std::move(b.tensor));
  return rw::pow(std::move(a.tensor), std::move(b.tensor));
}

void bind_operators(nb::class_<rw::Tensor>& tensor) {
  const nb::is_operator op;
  const auto swapped = [](auto f) {
    return [f](Operand b, Operand a) { return f(std::move(a), std::move(b)); };
  };
  tensor.def("__add__", &add, op, Release()).def("__radd__", &add, op, Release());
  tensor.def("__mul__", &mul, op, Release()).def("__rmul__", &mul, op, Release());
  tensor.def("__sub__", &sub, op, Release()).def("__rsub__", swapped(&sub), op, Release());
  tensor.def("__truediv__", &truediv, op, Release())
      .def("__rtruediv__", swapped(&truediv), op, Release());
  tensor.def("__floordiv__", &floordiv, op, Release())
      .def("__rfloordiv__", swapped(&floordiv), op, Release());
  tensor.def("__mod__", &pair<rw::remainder>, op, Release())
      .def("__rmod__", swapped(&pair<rw::remainder>), op, Release());
  tensor.def("__pow__", &pow, op, Release()).def("__rpow__", swapped(&pow), op, Release());
  const auto matmul = [](Given a, Given b) {
    return rw::matmul(std::move(a.tensor), std::move(b.tensor));
  };
  tensor.def("__matmul__", matmul, op, Release());
  tensor.def(
      "__rmatmul__",
      [](Given b, Given a) { return rw::matmul(std::move(a.tensor), std::move(b.tensor)); }, op,
      Release());
  tensor.def("__and__", &logical<rw::logical_and>, op, Release())
      .def("__rand__", &logical<rw::logical_and>, op, Release());
  tensor.def("__or__", &logical<rw::logical_or>, op, Release())
      .def("__ror__", &logical<rw::logical_or>, op, Release());
  tensor.def("__xor__", &logical<rw::logical_xor>, op, Release())
      .def("__rxor__", &logical<rw::logical_xor>, op, Release());
  tensor.def(
      "__invert__",
      [](const rw::Tensor& t) {
        rw::check<rw::DTypeError>(t.dtype() == rw::DType::u8, "logical",
                                  "&, |, ^ and ~ are of masks (u8), got {}", t);
        return rw::logical_not(t);
      },
      Release());
  tensor.def(
      "__neg__", [](const rw::Tensor& t) { return -t; }, Release());
  tensor.def("__pos__", [](nb::object self) { return self; });
  tensor.def(
      "__abs__", [](const rw::Tensor& t) { return rw::abs(t); }, Release());
  const auto compare = [&](const char* name, auto f) {
    tensor.def(
        name,
        [f](Operand a, Operand b) {
          return rw::Tensor(b.number ? f(a.tensor, *b.number) : f(a.tensor, b.tensor));
        },
        op, Release());
  };
  compare("__eq__", [](const auto& a, const auto& b) { return a == b; });
  compare("__ne__", [](const auto& a, const auto& b) { return a != b; });
  compare("__lt__", [](const auto& a, const auto& b) { return a < b; });
  compare("__le__", [](const auto& a, const auto& b) { return a <= b; });
  compare("__gt__", [](const auto& a, const auto& b) { return a > b; });
  compare("__ge__", [](const auto& a, const auto& b) { return a >= b; });
  const auto assign = [&](const char* name, auto f) {
    tensor.def(
        name,
        [f](nb::object self, Operand y) {
          rw::Tensor& x = *tensor_in(self);
          {
            const nb::gil_scoped_release release;
            const bool is_owned =
                x.is_leaf() &&
                (x.requires_grad() || x.impl().storage->purpose() == rw::Purpose::parameter);
            if (is_owned && !rw::grad_enabled()) {  // as PyTorch changes parameters under no_grad
              rw::Tensor copy = x;
              rw::Tensor result = rw::copy_of(x, x.dtype());
              y.number ? f(result, *y.number) : f(result, std::move(y.tensor));
              copy.copy_(result);
            } else {
              y.number ? f(x, *y.number) : f(x, std::move(y.tensor));
            }
          }
          return self;
        },
        op);
  };
  assign("__iadd__", [](rw::Tensor& a, auto b) { a += std::move(b); });
  assign("__isub__", [](rw::Tensor& a, auto b) { a -= std::move(b); });
  assign("__imul__", [](rw::Tensor& a, auto b) { a *= std::move(b); });
  assign("__itruediv__", [](rw::Tensor& a, auto b) { a /= std::move(b); });
  assign("add_", [](rw::Tensor& a, auto b) { a += std::move(b); });
  assign("sub_", [](rw::Tensor& a, auto b) { a -= std::move(b); });
  assign("mul_", [](rw::Tensor& a, auto b) { a *= std::move(b); });
  assign("div_", [](rw::Tensor& a, auto b) { a /= std::move(b); });
}

}  // namespace door
