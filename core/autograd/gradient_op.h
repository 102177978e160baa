// Vjps as ops of their own, for gradients of gradients (GradOptions::create_graph): the forward is
// the vjp of an op on the values that it reads and on dy, and Op::second is their vjp.
#pragma once

#include <vector>

#include "tape.h"

namespace rw {

// A gradient that is differentiated: an op, the values that its vjp read, the gradients dy of the
// op's outputs that the vjp received, and the gradients g that came for the gradients of the inputs
// that it made. Op::second gives it the gradients of what the vjp read.
class SecondOrder {
 public:
  // `gradient` is a record that recorded_vjp() made; `g` has a gradient for each of its outputs.
  SecondOrder(Record& gradient, std::span<Tensor> g);

  // The attributes of the op, which are a T: std::bad_any_cast otherwise.
  template <class T>
  const T& attributes() const {
    return of_->attributes<T>();
  }
  // Return what the vjp read, as the tape has it; AutogradError for what it did not read.
  const Tensor& input(int i) const { return gradient_.input(slot_of(inputs_, i)); }
  const Tensor& output(int i) const { return gradient_.input(slot_of(outputs_, i)); }
  Tensor dy(int i = 0) const;  // of output i; undefined if none came
  Tensor g(int i = 0) const;   // of the gradient of input i; undefined if none came

  // Tell whether the vjp must give the gradient of that value. Outputs that are no function of the
  // inputs to the vjp, as statistics that the forward keeps, must not get any.
  bool needs_input(int i) const { return needs(inputs_, i); }
  bool needs_output(int i) const { return needs(outputs_, i); }
  bool needs_dy(int i = 0) const { return needs(dys_, i); }
  // Give these gradients. Those that are not needed may be given, too.
  void give_input(int i, Tensor gradient) { give(inputs_, i, std::move(gradient)); }
  void give_output(int i, Tensor gradient) { give(outputs_, i, std::move(gradient)); }
  void give_dy(Tensor gradient, int i = 0) { give(dys_, i, std::move(gradient)); }

  // Returns the gradient of input i that the op's vjp makes with other values: `inputs` and `dy`
  // replace what it read where they are defined. It is a value of the tape.
  Tensor again(int i, const std::vector<Tensor>& inputs, const std::vector<Tensor>& dy) const;

  const Record& of() const { return *of_; }  // shapes and dtypes of the op's inputs and outputs
  std::vector<Tensor> take() { return std::move(gradients_); }

 private:
  using Slots = std::vector<int>;  // of the gradient's inputs; -1: it has none for this value
  int slot_of(const Slots& slots, int i) const;
  bool needs(const Slots& slots, int i) const;
  void give(const Slots& slots, int i, Tensor gradient);

  Record& gradient_;
  const Record* of_;
  Slots inputs_, outputs_, dys_;
  std::vector<Tensor> g_, gradients_;
};

// Op::second of ops that are linear in all inputs that they do not save: the op itself.
void linear_second(SecondOrder& s);
// Op::second of ops of two inputs that are linear in each, and save one for the other's gradient.
void bilinear_second(SecondOrder& s);

// Runs the vjp of a record as an op, which the tape records if a gradient may be needed; the
// record's saved values are those of the tape.
std::vector<Tensor> recorded_vjp(const Record& record, std::span<const Tensor> dy);
// Returns the gradient of the only input of an op of one output that saves the input alone.
Tensor recorded_gradient(const Op& op, std::any attrs, const Tensor& input, const Tensor& dy);

extern const Op cast_op;  // its attribute is the DType
// Return to_dtype(x, dtype) and sum_of(a, b) as values of the tape.
Tensor recorded_cast(Tensor x, DType dtype);
Tensor recorded_sum(Tensor a, Tensor b);

}  // namespace rw
