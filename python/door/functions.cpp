// rw.autograd.Function: an op whose forward and gradient are written in Python. It is a record like
// others: segments drop its results and replay it, plans count it.
#include <algorithm>
#include <map>

#include "python/door/door.h"

namespace door {

namespace {

// A call: the class, its arguments but for the tensors, and the object that forward and backward
// share. `saved` says which inputs (from 0) and outputs (below 0, from -1) backward reads.
struct FunctionCall {
  FunctionCall(nb::handle f, nb::handle c, nb::tuple a, std::vector<int> at)
      : function(nb::borrow(f)), context(nb::borrow(c)), arguments(a), places(std::move(at)) {}

  Reference function, context, arguments;
  std::vector<int> places;  // of the tensors among the arguments
  size_t results = 0;       // of forward; further outputs are kept for backward alone
  bool is_tuple = false;
  std::vector<int> saved = {};
  rw::Saves saves = {};
  std::vector<rw::Tensor> first = {};  // the outputs of the first run
  rw::OpCost cost = {};                // of that run
};
using CallPointer = std::shared_ptr<FunctionCall>;

// Runs forward in Python. Returns its results and, behind them, what else backward reads.
std::vector<rw::Tensor> run_python(FunctionCall& call, std::span<rw::Tensor> inputs) {
  const nb::gil_scoped_acquire acquire;
  nb::list arguments(nb::borrow<nb::tuple>(call.arguments.get()));
  for (size_t i = 0; i < inputs.size(); ++i)
    arguments[static_cast<size_t>(call.places[i])] = nb::cast(inputs[i]);
  const nb::handle context = call.context.get();
  context.attr("_to_save") = nb::tuple();
  const nb::object result = call.function.get().attr("forward")(context, *arguments);
  std::vector<rw::Tensor> outputs;
  call.is_tuple = PyTuple_Check(result.ptr()) || PyList_Check(result.ptr());
  if (call.is_tuple)
    for (nb::handle item : result) outputs.push_back(*nb::cast<rw::Tensor*>(item));
  else
    outputs.push_back(*nb::cast<rw::Tensor*>(result));
  call.results = outputs.size();
  call.saved.clear();
  call.saves = {};
  const nb::object kept = nb::borrow(context.attr("_to_save"));
  for (nb::handle item : kept) {
    const rw::Tensor t = *nb::cast<rw::Tensor*>(item);
    const auto is_t = [&](const rw::Tensor& other) { return other.pointer() == t.pointer(); };
    const auto input = std::ranges::find_if(inputs, is_t);
    if (input != inputs.end()) {
      const auto i = static_cast<int>(input - inputs.begin());
      call.saved.push_back(i);
      call.saves.inputs |= 1u << i;
      continue;
    }
    auto output = std::ranges::find_if(outputs, is_t);
    if (output == outputs.end()) output = outputs.insert(output, t);
    const auto i = static_cast<int>(output - outputs.begin());
    call.saved.push_back(-1 - i);
    call.saves.outputs |= 1u << i;
  }
  rw::check(std::max(inputs.size(), outputs.size()) <= 32, "Function",
            "at most 32 tensors go in and out, got {} and {}", inputs.size(), outputs.size());
  context.attr("_to_save") = nb::tuple();
  return outputs;
}

std::vector<rw::Tensor> forward(const std::any& attributes, std::span<rw::Tensor> inputs) {
  FunctionCall& call = *std::any_cast<const CallPointer&>(attributes);
  if (call.first.empty()) return run_python(call, inputs);
  rw::context().queued.flops +=
      call.cost.flops;  // it has just run: its cost is that of this record
  rw::context().queued.bytes += call.cost.bytes;
  return std::move(call.first);
}

std::vector<rw::Tensor> backward(rw::Record& record, std::span<rw::Tensor> dy) {
  FunctionCall& call = *record.attributes<CallPointer>();
  const nb::gil_scoped_acquire acquire;
  nb::list saved, gradients;
  for (const int i : call.saved)
    saved.append(nb::cast(i >= 0 ? record.input(i) : record.output(-1 - i)));
  for (size_t i = 0; i < call.results; ++i) {
    if (!dy[i].defined()) dy[i] = rw::full(record.outputs[i].shape, 0, record.outputs[i].dtype);
    gradients.append(nb::cast(dy[i]));
  }
  const nb::handle context = call.context.get();
  context.attr("saved_tensors") = nb::tuple(saved);
  nb::object result = call.function.get().attr("backward")(context, *gradients);
  context.attr("saved_tensors") = nb::tuple();
  if (!PyTuple_Check(result.ptr()) && !PyList_Check(result.ptr())) result = nb::make_tuple(result);
  const size_t count = nb::len(result), wanted = nb::len(call.arguments.get());
  rw::check<rw::AutogradError>(
      count == wanted, record.op->name,
      "backward returns a gradient or None for each of {} arguments of forward, got {}", wanted,
      count);
  std::vector<rw::Tensor> found(record.inputs.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const nb::object one = result[call.places[i]];
    if (one.is_none() || !record.needs_grad(static_cast<int>(i))) continue;
    const rw::Edge& edge = record.inputs[i];
    rw::Tensor g = *nb::cast<rw::Tensor*>(one);
    rw::check<rw::ShapeError>(g.shape() == edge.shape, record.op->name,
                              "gradient {} has the shape of its input, {}, got {}", i, edge.shape,
                              g);
    found[i] = g.dtype() == edge.dtype ? std::move(g) : rw::cast(std::move(g), edge.dtype);
  }
  return found;
}

// The op of a class, which lives as long as the process. The gradient of what backward reads beside
// arguments and results would be lost in a gradient of a gradient, which is then refused.
const rw::Op& op_of(nb::handle function, bool has_second) {
  static std::map<std::pair<PyObject*, bool>, const rw::Op*> ops;
  const rw::Op*& op = ops[{function.ptr(), has_second}];
  if (!op) {
    auto* name = new std::string(nb::cast<std::string>(function.attr("__name__")));
    op = new rw::Op{.name = name->c_str(),
                    .forward = forward,
                    .vjp = backward,
                    .saves = [](const std::any& a,
                                uint32_t) { return std::any_cast<const CallPointer&>(a)->saves; },
                    .records_vjp = has_second};
    Py_INCREF(function.ptr());
  }
  return *op;
}

nb::object apply_function(nb::handle function, nb::handle context, nb::tuple arguments) {
  nb::list rest;
  std::vector<rw::Tensor> inputs;
  std::vector<int> places;
  nb::list needs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const rw::Tensor* t = tensor_in(arguments[i]);
    needs.append(t && t->requires_grad());
    rest.append(t ? nb::none() : nb::object(arguments[i]));
    if (!t) continue;
    inputs.push_back(*t);
    places.push_back(static_cast<int>(i));
  }
  context.attr("needs_input_grad") = nb::tuple(needs);
  const std::string name = nb::cast<std::string>(function.attr("__name__"));
  const bool is_once = nb::cast<bool>(function.attr("once_differentiable"));
  const auto call =
      std::make_shared<FunctionCall>(function, context, nb::tuple(rest), std::move(places));
  {
    // A record asks what its gradient reads before its op runs, but forward tells while it runs.
    const nb::gil_scoped_release release;
    const rw::NoGrad no_grad;
    const rw::NoAutocast no_autocast;
    const rw::OpScope scope(name.c_str());
    const rw::OpCost before = rw::context().queued;
    std::vector<rw::Tensor> detached;
    for (const rw::Tensor& t : inputs) detached.push_back(t);
    call->first = run_python(*call, detached);
    call->cost = {rw::context().queued.flops - before.flops,
                  rw::context().queued.bytes - before.bytes};
    rw::context().queued = before;
  }
  const rw::Op& op = op_of(function, !is_once && call->first.size() == call->results);
  std::vector<rw::Tensor> outputs;
  {
    const nb::gil_scoped_release release;
    outputs = rw::apply(op, call, std::move(inputs));
  }
  if (!call->is_tuple) return nb::cast(std::move(outputs[0]));
  nb::list results;
  for (size_t i = 0; i < call->results; ++i) results.append(nb::cast(std::move(outputs[i])));
  return nb::tuple(results);
}

}  // namespace

void bind_functions(nb::module_& m) {
  m.def("_apply_function", &apply_function, "function"_a, "context"_a, "arguments"_a);
}

}  // namespace door
