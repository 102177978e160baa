// Results of ops beside tensors: Python's tuples with names.
#pragma once

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "door.h"

namespace door {

extern PyObject *sort_result, *batch_norm_result, *lstm_result;  // their types

// A loss, and the classes that it found likeliest if they were asked for.
struct Predicted {
  rw::Tensor loss, predicted;
};

}  // namespace door

namespace nanobind::detail {

template <>
struct type_caster<rw::SortResult> {
  NB_TYPE_CASTER(rw::SortResult, const_name("rewind.SortResult"))
  static handle from_cpp(const rw::SortResult& r, rv_policy, cleanup_list*) noexcept {
    return door::named_tuple(door::sort_result,
                             {nanobind::cast(r.values), nanobind::cast(r.indices)})
        .release();
  }
};

template <>
struct type_caster<rw::BatchNormResult> {
  NB_TYPE_CASTER(rw::BatchNormResult, const_name("rewind.BatchNormResult"))
  static handle from_cpp(const rw::BatchNormResult& r, rv_policy, cleanup_list*) noexcept {
    return door::named_tuple(door::batch_norm_result,
                             {nanobind::cast(r.y), nanobind::cast(r.mean), nanobind::cast(r.var),
                              nanobind::cast(r.rows)})
        .release();
  }
};

template <>
struct type_caster<rw::LstmResult> {
  NB_TYPE_CASTER(rw::LstmResult, const_name("rewind.LstmResult"))
  static handle from_cpp(const rw::LstmResult& r, rv_policy, cleanup_list*) noexcept {
    return door::named_tuple(door::lstm_result, {nanobind::cast(r.y), nanobind::cast(r.c)})
        .release();
  }
};

template <>
struct type_caster<door::Predicted> {
  NB_TYPE_CASTER(door::Predicted, const_name("rewind.Tensor | tuple[rewind.Tensor, rewind.Tensor]"))
  static handle from_cpp(const door::Predicted& r, rv_policy, cleanup_list*) noexcept {
    nanobind::object loss = nanobind::cast(r.loss);
    if (!r.predicted.defined()) return loss.release();
    return nanobind::make_tuple(loss, r.predicted).release();
  }
};

}  // namespace nanobind::detail
