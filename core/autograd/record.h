// One step of a program as the tape keeps it: an op, its attributes and the values that its vjp
// reads.
//
// A record holds no closure: op.forward(attrs, inputs) can be called again at any time and gives
// the same bits; op.vjp(record, dy) is a plain function of saved values and of dy. Only the values
// that the op declares in `saves` stay alive; edges to other values carry shape and dtype, no
// storage.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "../base/hash.h"
#include "../base/recycled.h"
#include "../tensor/tensor.h"

namespace rw {

struct Record;
class SecondOrder;

// The values that an op's vjp reads, as bits of `inputs` and `outputs`: bit i stands for input i or
// output i. Only the first 32 can be saved.
struct Saves {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t taken = 0;  // of the inputs: those that the vjp takes (Record::take_input) before it
                       // makes the gradient that is as large: the planner counts on it

  // Whether bit i is set.
  bool input(size_t i) const { return i < 32 && (inputs >> i & 1); }
  bool output(size_t i) const { return i < 32 && (outputs >> i & 1); }
  bool takes(size_t i) const { return i < 32 && (taken >> i & 1); }
};

// A user's own op is the same struct as the built-in ones.
struct Op {
  const char* name;  // in messages, reports and policies; lives as long as the op
  // Computes outputs from inputs. It is pure: only attrs and inputs decide the result, and no input
  // is changed unless this call holds its last handle (reuse_or_empty). The handles stay where they
  // are, since the records that made the inputs live on the tape as long as the handles do.
  std::vector<Tensor> (*forward)(const std::any& attrs, std::span<Tensor> inputs);
  // Returns one gradient per input from one per output (undefined = zero); undefined results mean
  // none. May move from dy. Null: not differentiable.
  std::vector<Tensor> (*vjp)(Record& record, std::span<Tensor> dy) = nullptr;
  // `needs` has bit i set if input i needs a gradient (for the first 32).
  Saves (*saves)(const std::any& attrs, uint32_t needs) = [](const std::any&, uint32_t) {
    return Saves{};
  };
  // The vjp takes dy of any float dtype (casts, views): weight gradients stay f32 on their way.
  bool any_grad_dtype = false;
  // Its vjp passes a gradient on as it is, in the dtype of its first input (casts).
  bool passes_gradient = false;
  // A matrix product, a convolution or the like, which is expensive to run again (save_matmuls).
  bool is_heavy = false;
  // The output is a view of its first input: the planner counts them as one value.
  bool is_view = false;
  // Its derivative is 0 wherever it has one (sign, round): its result on a gradient is a constant.
  bool has_zero_gradient = false;
  // Its gradient is continuous in what it saves, or reads only the sign of it, so that a small
  // error of a saved value makes a small error of the gradient: plans may keep the value in 8 bits
  // meanwhile, which keeps signs and zeros. False where the vjp decides by the value or divides by
  // it.
  bool saves_8_bits = false;
  // Segments keep its outputs, since what they are made of may change before a replay.
  bool is_kept = false;
  // The name by which policies know it, if that is not the op's name.
  const char* (*label)(const std::any& attrs) = nullptr;
  // For gradients of gradients (GradOptions::create_graph). Either the vjp is written with public
  // ops alone, on values of the record and on dy, so that it can be recorded as it stands;
  bool records_vjp = false;
  // or it runs as an op of its own, of which this is the vjp, in public ops (SecondOrder). An op
  // that has neither is refused there.
  void (*second)(SecondOrder& s) = nullptr;
};

// A value as it was at one time.
struct Saved {
  Tensor tensor;         // detached
  uint32_t version = 0;  // of its storage at that time (Storage::version)

  // Returns the current value of t.
  static Saved of(const Tensor& t) { return {t.detach(), t.impl().storage->version()}; }
  // Tells whether nobody has written to it since then.
  bool is_intact() const { return tensor.impl().storage->version() == version; }
};

// Names what a record reads or makes: a value at one time, since programs may write into it.
struct ValueKey {
  uint64_t id = 0;       // TensorImpl::id
  uint32_t version = 0;  // Edge::version
  bool operator==(const ValueKey&) const = default;
  size_t hash() const { return std::hash<uint64_t>()(id + (uint64_t{version} << 40)); }  // of both
};
// Things by value.
template <class T>
using ByValue = std::unordered_map<ValueKey, T, KeyHash>;

// A value as a record sees it: always its shape and dtype, and its contents if they are saved.
struct Edge {
  uint64_t id = 0;      // of the value (TensorImpl::id)
  int64_t record = -1;  // the record that made it; -1: made outside the tape
  int slot = 0;         // which of that record's outputs it is
  Shape shape;
  DType dtype = DType::f32;
  bool requires_grad = false;       // a gradient is wanted
  Tensor leaf;                      // a leaf that collects its gradient
  uint64_t storage = 0, bytes = 0;  // the id and the size of its storage
  uint64_t contents = 0;            // Storage::contents()
  uint32_t version = 0;             // of its storage when it was read, or made
  uint64_t root = 0;                // the same number for all views of one content
  // For outputs: how many records there were when the handle died; -1: it is alive.
  int64_t released = -1;
  Saved saved;      // for the vjp, as the forward read it
  Tensor gradient;  // for outputs, in backward: the sum of the gradients so far
  // For inputs, in backward: the edge of the f32 leaf of which it is a cast, unless somebody wants
  // the cast's own gradient; else null.
  const Edge* leaf_edge = nullptr;

  // Names the value as it was then.
  ValueKey key() const { return {id, version}; }
  // Tells whether the program has written into the contents since this edge read or made them.
  bool is_overwritten() const {
    const auto& writes = thread_state().writes;
    const auto last = writes.empty() ? writes.end() : writes.find(contents);
    return last != writes.end() && last->second > version;
  }
};

using Edges = std::vector<Edge, Recycled<Edge>>;  // the inputs or the outputs of a record

// An op that ran: its arguments, and the values that its gradient will read.
struct Record {
  const Op* op = nullptr;        // null: freed
  std::any attrs;                // the op's attributes, as attributes<T>() reads them
  Edges inputs, outputs;         // its arguments and its results
  Saves saves;                   // which of them its vjp reads
  uint32_t given = 0;            // of the first 32 inputs, those whose last handle the op was given
  bool reached = false;          // by the gradient of the current backward
  bool is_last_read = false;     // no backward after the current one reads the saved values
  bool is_for_leaves = true;     // the current backward adds to its leaves' gradients
  OpCost cost;                   // of running it forward, counted when its kernels were queued
  int segment = -1;              // innermost checkpoint segment
  int64_t readers = 0;           // live handles on the outputs + records that read them
  std::vector<uint64_t> hashes;  // of the outputs' contents, when replays are verified

  // Returns the attributes, which are a T: std::bad_any_cast otherwise.
  template <class T>
  const T& attributes() const {
    return std::any_cast<const T&>(attrs);
  }
  // Return saved values; AutogradError if not declared in `saves`, freed, or changed since the
  // forward.
  const Tensor& input(int i) const;
  const Tensor& output(int i) const;
  // Returns input(i), which is read for the last time: the record releases it if no later backward
  // may need it, so that its memory can hold the next gradient.
  Tensor take_input(int i);
  // Returns the edge to which a gradient of input i goes: that input's, or for an f32 gradient that
  // of the leaf behind a cast.
  const Edge& gradient_edge(size_t i, DType of_gradient) const {
    const Edge& edge = inputs[i];
    return edge.leaf_edge && of_gradient == DType::f32 ? *edge.leaf_edge : edge;
  }
  // Returns the gradient that the leaf already has, or the zeros in its place (f32, dense), for the
  // vjp to add to and to return, so that no second one is in memory. Undefined if there is none.
  Tensor gradient_so_far(int i) const;
  // Tells whether the vjp must make the gradient of this input.
  bool needs_grad(int input) const { return inputs[input].requires_grad; }
  // Returns the name by which policies know the record: Op::label, else the op's name.
  const char* label() const { return op->label ? op->label(attrs) : op->name; }
};

// Calls body(Edge&) for the values that the record's vjp reads.
template <class R, class F>
void each_saved(R& record, F&& body) {
  for (size_t k = 0; k < record.inputs.size(); ++k)
    if (record.saves.input(k)) body(record.inputs[k]);
  for (size_t k = 0; k < record.outputs.size(); ++k)
    if (record.saves.output(k)) body(record.outputs[k]);
}

// Runs op.forward. The outputs are new values even if the op hands out an input as it is. They
// depend on a gradient if an input does and a derivative would be wanted. It is inlined, as it
// stands between every op and its work.
[[gnu::always_inline]] inline std::vector<Tensor> run_forward(const Op& op, const std::any& attrs,
                                                              std::span<Tensor> inputs) {
  bool from_gradient = false;
  if (op.vjp && !op.has_zero_gradient && grad_enabled())
    for (const Tensor& t : inputs) from_gradient |= t.impl().from_gradient;
  const NoGrad guard;
  const NoAutocast no_autocast;
  std::vector<Tensor> outputs = op.forward(attrs, inputs);
  for (Tensor& y : outputs) {
    const TensorImpl& impl = y.impl();
    const bool fresh = y.pointer().use_count() == 1 && impl.producer.index < 0;
    if (!fresh) y = make_view(y, impl.shape, impl.strides, impl.offset);
    if (from_gradient) y.impl().from_gradient = is_float(y.dtype());
  }
  return outputs;
}

// Returns a hash of the tensor's values, computed on the host. Waits for the device.
uint64_t content_hash(const Tensor& t);

}  // namespace rw
