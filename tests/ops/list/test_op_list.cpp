// The list of ops (ops/list/op_list.h): every op has rows in the op table, and does there what the
// list says of it.
#include <algorithm>
#include <set>
#include <string_view>

#include "core/autograd/gradients.h"
#include "ops/list/op_list.h"
#include "ops/operators.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

const OpInfo* op_named(std::string_view name) {
  const auto found = std::ranges::find(op_list(), name, &OpInfo::name);
  return found == op_list().end() ? nullptr : &*found;
}

// The op that begins the name of a row: "softmax over 1". Null for one of several ops.
const OpInfo* op_of(std::string_view row) {
  const OpInfo* op = op_named(row.substr(0, row.find_first_of(" ,:")));
  return row.find(" and ") == row.npos ? op : nullptr;
}

// Returns the first row of an op, which uses it in the plainest way; null if there is none.
const OpCase* row_of(const OpInfo& op) {
  const auto found =
      std::ranges::find_if(op_cases(), [&](const OpCase& row) { return op_of(row.name) == &op; });
  return found == op_cases().end() ? nullptr : &*found;
}

bool accepts(const OpInfo& op, DType dtype) {
  const std::string_view dtypes = op.dtypes;
  return dtypes == "any" || dtypes.find(is_float(dtype) ? "float" : name(dtype)) != dtypes.npos;
}

// The row with another dtype in place of f32; ints are not differentiable.
OpCase with_dtype(const OpCase& row, DType dtype) {
  OpCase other = row;
  for (Input& input : other.inputs) {
    if (!is_float(input.dtype) || input.keep_f32) continue;
    input.dtype = dtype;
    input.differentiable &= is_float(dtype);
    if (dtype == DType::u8) input.low = std::max(input.low, 0.0f);
  }
  return other;
}

bool takes(const OpCase& row) {
  try {
    evaluate(make_inputs(row), row.run);
    return true;
  } catch (const DTypeError&) {
    Tape::current()->clear();
    return false;
  }
}

// Tells whether a gradient reaches the results: of the inputs that have one in the row, or, if
// there are none, of all floats.
bool passes_gradient(const OpCase& row) {
  const auto has_one = [](const Input& input) { return input.differentiable; };
  const bool has_any = std::ranges::any_of(row.inputs, has_one);
  Tensors inputs = make_inputs(row);
  for (Tensor& t : inputs)
    if (!has_any && is_float(t.dtype())) t.set_requires_grad(true);
  const Tensors outputs = row.run(inputs);
  return std::ranges::any_of(outputs, [](const Tensor& y) { return y.requires_grad(); });
}

// Tells how often the results can be differentiated, as a head does.
int order_of(const OpCase& row) {
  if (!passes_gradient(row)) return 0;
  Tape::current()->clear();
  Tensors inputs = make_inputs(row), wanted;
  for (const Tensor& t : inputs)
    if (t.requires_grad()) wanted.push_back(t);
  Tensor loss;
  for (const Tensor& y : row.run(inputs))
    if (y.requires_grad()) loss = loss ? loss + sum(cast(y, DType::f32)) : sum(cast(y, DType::f32));
  if (!loss || wanted.empty()) return 2;  // its gradient is that of integers
  try {
    grad({loss}, wanted, {.create_graph = true, .allow_unused = true});
  } catch (const AutogradError&) {
    return 1;
  }
  return 2;
}

// The names of the ops that run while it lives.
class RecordedNames : public Tape::Observer {
 public:
  RecordedNames() { Tape::current()->add_observer(*this); }
  ~RecordedNames() override { Tape::current()->remove_observer(*this); }
  bool records_all() const override { return true; }
  void after_forward(int64_t, const Record& record, std::span<const Tensor>) override {
    found.insert(record.op->name);
  }
  std::set<std::string> found;
};

}  // namespace

TEST_CASE_FIXTURE(CpuDevice,
                  "op list: every op has a row, with the dtypes and the gradient of its head" *
                      doctest::test_suite("host")) {
  CHECK(op_list().size() > 180);
  for (const OpInfo& op : op_list()) {
    INFO(op.name);
    const OpCase* row = row_of(op);
    // The shapes of these depend on values, so they wait and cannot be in every test of a row.
    const bool waits =
        op.name == std::string_view("nonzero") || op.name == std::string_view("masked_select");
    CHECK((row != nullptr) != waits);
    if (!row) continue;
    INFO(row->name);
    CHECK(order_of(*row) == op.order);
    Tape::current()->clear();
    bool has_floats = false;
    for (const Input& input : row->inputs) has_floats |= is_float(input.dtype);
    CHECK(row->inputs.empty() == (op.dtypes == std::string_view("none")));
    if (!has_floats) {
      if (!row->inputs.empty()) CHECK(accepts(op, row->inputs[0].dtype));
      continue;
    }
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
      CHECK_MESSAGE(takes(with_dtype(*row, dtype)) == accepts(op, dtype), std::string(name(dtype)));
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "op list: records have the names of the list" * doctest::test_suite("host")) {
  RecordedNames names;
  for (const OpCase& row : op_cases()) evaluate(make_inputs(row), row.run);
  CHECK(names.found.size() > 100);
  for (const std::string& name : names.found) CHECK_MESSAGE(op_named(name), name);
}

}  // namespace rw::test
