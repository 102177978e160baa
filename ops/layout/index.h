// Rows of a table that an index names.
#pragma once

#include <optional>

#include "../../core/tensor/tensor.h"

namespace rw::detail {

// With REWIND_CHECK_INDICES=1: ValueError unless all elements of the i32 tensor are in [0, most] or
// `ignored`; waits for the device. `what` is its name in the message.
void check_indices(const char* op, const char* what, const Tensor& index, int64_t most,
                   std::optional<int32_t> ignored = {});

// The rows of a table [rows, width] that an index [n] (i32, dense) names.
struct Rows {
  Tensor index;
  int64_t n, width, rows;
};
// The way in which rows are written where an index says (the kernel scatter_add's modes).
enum class PutMode : uint32_t { add, replace, unique };
// y [n, width] = table[index].
Tensor take_rows(const Tensor& table, const Rows& rows);
// Adds dy's rows to y (f32 or i32, dense) or writes them there, in the order of the index; with
// `unique` none occurs twice.
void put_rows(const Tensor& dy, const Rows& rows, const Tensor& y, PutMode mode);
// Marks the rows that are the last ones of their index: u8 [n].
Tensor is_last_row(const Rows& rows);

}  // namespace rw::detail
